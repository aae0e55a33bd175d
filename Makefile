# SPDX-License-Identifier: MIT
# The front door. `make run` and `make test` do all the set-up themselves on a fresh Debian 12 machine.
BUILD ?= build
PREFIX ?= /usr/local

.PHONY: bench install package help build deps run demo test test-long support format clean

help:
	@echo "make build       the command at $(BUILD)/bin/uhca, the libraries under $(BUILD)/lib/uhca"
	@echo "make run         two unmodified ibv_rc_pingpong processes over uhca, then one message through all layers"
	@echo "make demo        the casts of README.md: without privileges, and under a stock kernel in a virtual machine"
	@echo "make run-gpu     two processes with a GPU each: memory of one to memory of the other, and a buffer that moves, traced"
	@echo "make test-gpu    what is about GPU memory, AMD's own libraries included; ends with a count"
	@echo "make test        every test (installs what is missing)"
	@echo "make test-long   the long rigs as well"
	@echo "make support     docs/support.md from the tables of functions and docs/support.in.md"
	@echo "make bench       ratios against the machine's limits; ROW=REGEX for some of them"
	@echo "make install     into PREFIX ($(PREFIX)), below DESTDIR; the libraries go to a folder of their own"
	@echo "make package     a Debian package in $(BUILD)"
	@echo "make format      clang-format over the sources"

deps:
	@scripts/install-deps

build: deps
	@cmake --preset release -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
	@cmake --build --preset release

run: build
	@scripts/demo $(BUILD)

demo: build
	@scripts/cast $(BUILD)

run-gpu: build
	@scripts/demo-gpu $(BUILD)

test-gpu: build
	@scripts/test-gpu $(BUILD)

test: build
	@scripts/run-tests $(BUILD)

test-long: build
	@scripts/install-deps long
	@scripts/run-tests $(BUILD) long

support:
	@scripts/gen-support

bench: build
	@python3 bench/run.py $(BUILD) $(ROW)

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

package: build
	@cd $(BUILD) && cpack -G DEB

format:
	@find src tests -name '*.cpp' -o -name '*.h' | xargs clang-format -i

clean:
	rm -rf build build-asan build-fuzz build-tsan build-debug build-clang
