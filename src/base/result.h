// SPDX-License-Identifier: MIT
// Result<T>: a value or an errno. The project builds without exceptions; every fallible function returns one of these.
#pragma once

#include <cerrno>
#include <new>
#include <type_traits>
#include <utility>

namespace uhca {

// A positive errno value (EINVAL, ...). Errno{0} never stands for an error.
struct [[nodiscard]] Errno {
  int value;
  explicit constexpr Errno(int v) : value(v) {}
  friend constexpr bool operator==(Errno a, Errno b) { return a.value == b.value; }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(Errno e) : err_(e.value) {}  // NOLINT: implicit by design
  template <class U = T, class = std::enable_if_t<std::is_constructible_v<T, U&&> && !std::is_same_v<std::decay_t<U>, Errno> &&
                                                  !std::is_same_v<std::decay_t<U>, Result>>>
  Result(U&& v) : err_(0) {  // NOLINT
    new (&val_) T(std::forward<U>(v));
  }
  Result(Result&& o) noexcept : err_(o.err_) {
    if (ok()) new (&val_) T(std::move(o.val_));
  }
  Result& operator=(Result&& o) noexcept {
    if (this != &o) {
      this->~Result();
      new (this) Result(std::move(o));
    }
    return *this;
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result() {
    if (ok()) val_.~T();
  }

  bool ok() const { return err_ == 0; }
  explicit operator bool() const { return ok(); }
  // Only when !ok().
  Errno error() const { return Errno{err_}; }
  // 0 or the errno.
  int code() const { return err_; }
  T& value() & { return val_; }
  const T& value() const& { return val_; }
  T&& value() && { return std::move(val_); }
  T& operator*() & { return val_; }
  T&& operator*() && { return std::move(val_); }
  T* operator->() { return &val_; }

 private:
  int err_;
  union {
    T val_;
  };
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Errno e) : err_(e.value) {}  // NOLINT
  bool ok() const { return err_ == 0; }
  explicit operator bool() const { return ok(); }
  Errno error() const { return Errno{err_}; }
  int code() const { return err_; }

 private:
  int err_ = 0;
};

using Status = Result<void>;
inline Status success() { return {}; }

// UHCA_TRY(x): the value of the Result x, or return its error from the enclosing function.
#define UHCA_TRY(expr)                                   \
  __extension__({                                        \
    auto uhca_try_ = (expr);                             \
    if (!uhca_try_.ok()) return uhca_try_.error();       \
    std::move(uhca_try_).value();                        \
  })
// The same for Status.
#define UHCA_CHECK(expr)                                 \
  do {                                                   \
    if (auto uhca_chk_ = (expr); !uhca_chk_.ok()) return uhca_chk_.error(); \
  } while (0)

}  // namespace uhca
