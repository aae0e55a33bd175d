// SPDX-License-Identifier: MIT
// Ordinary programs under LD_PRELOAD=libuhca.so, and what they print.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct Outcome {
  int rc;
  std::string out;
};

// A shell command; `preload` puts the library into it and its children.
Outcome run(const std::string& command, bool preload = true, const std::string& env = "") {
  std::string full =
      env + (preload ? " LD_PRELOAD=" UHCA_BUILD_DIR "/lib/uhca/libuhca.so " : " ") + "exec /bin/bash --norc -c '" + command + "' 2>&1";
  FILE* p = popen(full.c_str(), "r");
  if (!p) return {-1, ""};
  Outcome o;
  char buf[4096];
  std::size_t n;
  while ((n = fread(buf, 1, sizeof buf, p)) > 0) o.out.append(buf, n);
  int status = pclose(p);
  o.rc = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return o;
}

Outcome program(const std::string& mode) {
  return run(UHCA_BUILD_DIR "/bin/sys_program " + mode);
}

TEST(Surface, ListsAndReads) {
  EXPECT_EQ(run("ls /sys/class/infiniband").out, "mlx5_0\n");
  EXPECT_EQ(run("ls /sys/class/infiniband_verbs").out, "abi_version\nuverbs0\n");
  EXPECT_EQ(run("cat /sys/class/infiniband/mlx5_0/node_type").out, "1: CA\n");
  EXPECT_EQ(run("cat /sys/class/infiniband_verbs/abi_version /sys/class/infiniband_verbs/uverbs0/ibdev").out, "6\nmlx5_0\n");
  EXPECT_EQ(run("cat /sys/class/infiniband/mlx5_0/ports/1/link_layer").out, "Ethernet\n");
  EXPECT_EQ(run("cat /sys/class/infiniband/mlx5_0/device/vendor").out, "0x15b3\n");
  EXPECT_EQ(run("wc -c < /sys/class/infiniband/mlx5_0/device/config").out, "256\n");
  EXPECT_EQ(run("stat -c %F:%t:%T /dev/infiniband/uverbs0").out, "character special file:e7:c0\n");
  EXPECT_EQ(run("readlink -f /sys/dev/char/231:192/device").out, "/sys/devices/pci0000:00/0000:03:00.0\n");
  EXPECT_EQ(run("test -e /dev/infiniband/uverbs1").rc, 1);
}

TEST(Surface, MergesIntoRealDirectories) {
  EXPECT_EQ(run("ls /dev | grep -cx infiniband").out, "1\n");
  EXPECT_EQ(run("ls /dev | grep -cx null").out, "1\n");
  EXPECT_EQ(run("ls /sys/class | grep -c ^infiniband").out, "2\n");
  EXPECT_EQ(run("ls /sys/class | grep -cx net").out, "1\n");
  EXPECT_EQ(run("ls /sys/class/infiniband", false).rc, 2) << "this host has RDMA hardware: the comparison means nothing";
}

TEST(Surface, ShellsWalkIt) {
  EXPECT_EQ(run("echo /sys/class/infini*/mlx5_*/node_g*").out, "/sys/class/infiniband/mlx5_0/node_guid\n");
  EXPECT_EQ(run("cd /sys/class/infiniband && pwd && ls && cat mlx5_0/node_type && cd .. && pwd").out,
            "/sys/class/infiniband\nmlx5_0\n1: CA\n/sys/class\n");
  EXPECT_EQ(run("cd /sys/class/infiniband/mlx5_0 && (cd ports && ls) && ls -d device/.").out, "1\ndevice/.\n");
  EXPECT_EQ(run("find /sys/class/infiniband/mlx5_0/ports -name rate").out, "/sys/class/infiniband/mlx5_0/ports/1/rate\n");
  EXPECT_EQ(run("find /sys/class/infiniband/mlx5_0/ports/1/gids | wc -l").out, "257\n");
}

TEST(Surface, Python) {
  EXPECT_EQ(run("python3 -c \"import os; print(os.listdir(\\\"/sys/class/infiniband\\\"), "
                "os.path.realpath(\\\"/sys/class/infiniband/mlx5_0\\\"))\"")
                .out,
            "['mlx5_0'] /sys/devices/pci0000:00/0000:03:00.0/infiniband/mlx5_0\n");
  EXPECT_EQ(
      run("python3 -c \"import os,subprocess; os.chdir(\\\"/sys/class/infiniband\\\"); print(os.getcwd(), subprocess.run([\\\"ls\\\"],"
          "capture_output=True).stdout)\"")
          .out,
      "/sys/class/infiniband b'mlx5_0\\n'\n");
}

TEST(Surface, Netlink) {
  Outcome o = run("rdma link show -j");
  EXPECT_EQ(o.rc, 0);
  EXPECT_NE(o.out.find("\"ifname\":\"mlx5_0\",\"port\":1,\"state\":\"ACTIVE\",\"physical_state\":\"LINK_UP\""), std::string::npos) << o.out;
  o = run("rdma dev show mlx5_0");
  EXPECT_EQ(o.rc, 0);
  EXPECT_NE(o.out.find("mlx5_0: node_type ca"), std::string::npos) << o.out;
  EXPECT_NE(run("rdma dev show mlx5_7").rc, 0);
  EXPECT_EQ(run("rdma system show").rc, 0);
}

TEST(Surface, StatOfDescriptors) {
  EXPECT_EQ(program("stat").out,
            "fstat 1 231:192\nstatx 1 231:192\nsysfs reg=1 size=4096 read=6 1: CA\nwrite EACCES\nopenat ok\nopenat missing ENOENT\n"
            "through a file ENOTDIR\nempty gid type EINVAL\n");
}

TEST(Surface, BadPointersAndRequests) {
  EXPECT_EQ(run(UHCA_BUILD_DIR "/bin/sys_program pointers < /dev/null").out,
            "ioctl null EFAULT\nioctl low EFAULT\nioctl kernel EFAULT\nioctl other ENOTTY\nioctl other device ENOTTY\nwrite bad EFAULT\n"
            "write short EINVAL\nbefore context EINVAL\nmmap before context EINVAL\n");
}

// EINVAL is the kernel's answer before GET_CONTEXT: the descriptor led to a live file.
TEST(Surface, LastClose) {
  EXPECT_EQ(program("close").out,
            "three more: 1\ndup works EINVAL\nthird works EINVAL\nall gone: 1\nafter a flight EINVAL\nafter closefrom EINVAL\n"
            "after close of all EINVAL\n");
}

TEST(Surface, ReleaseComesWithTheLastClose) {
  Outcome o = run(UHCA_BUILD_DIR "/bin/sys_program close", true, "UHCA_TRACE_FD=1");
  std::size_t released = 0;
  for (std::size_t at = o.out.find("\"last\":true"); at != std::string::npos; at = o.out.find("\"last\":true", at + 1)) ++released;
  // device(), three dups, the one in flight, the two closed by closefrom and the loop; the last one lives to the end.
  EXPECT_EQ(released, 4u) << o.out;
}

TEST(Surface, ForkAndExec) {
  EXPECT_EQ(program("fork").out,
            "parent EINVAL\ninherited EIO\ninherited mmap EIO\nown EINVAL\nchild 7\nparent still EINVAL\nover exec EIO chr=1\n"
            "parent to the end EINVAL\n");
}

TEST(Surface, Signals) {
  EXPECT_EQ(
      program("signals").out,
      "handler kept 1 siginfo 0\ninfo 1 value 42\nreset 1\nsignal 1\nafter longjmp EINVAL\nown fault 0\nown fault 1\ncopies still EFAULT\n"
      "blocked EFAULT\n");
}

TEST(Surface, HandlersThatLeaveByLongjmp) {
  EXPECT_EQ(program("storm").out, "storm over EINVAL\n");
}

TEST(Surface, HandlersThatPoll) {
  EXPECT_EQ(program("polls").out, "polls over\n");
}

TEST(Surface, ConnectionManagementTakesFaults) {
  EXPECT_EQ(program("cm_thread").out, "segv 0 bus 0 term 1\n");
}

TEST(Surface, SmallStacksAndBlockedSignals) {
  EXPECT_EQ(program("threads").out, "threads 32\n");
}

TEST(Surface, WalkersOfTheCLibrary) {
  EXPECT_EQ(program("walk").out,
            "scandir 3 mlx5_0\nglob 0 node_desc node_guid node_type\nnftw 0 files 1\nrewind 1\nrealpath 0000:03:00.0\n"
            "getcwd /sys/devices/pci0000:00/0000:03:00.0/infiniband/mlx5_0/ports\nrelative ok\nout ok\ngetcwd /\n");
}

// A default action that ends the process still does, and says the right signal.
TEST(Surface, FaultsStillKill) {
  EXPECT_EQ(program("fault").rc, 139);
  EXPECT_EQ(program("term").rc, 143);
}

// A program that shows no interest is left as it is: the same output, no thread, no descriptor, no file.
TEST(Surface, HarmlessElsewhere) {
  for (const char* command :
       {"echo $(( 6 * 7 )); type cd; ls /proc/self/fd | wc -l", "seq 3 | sort -r | paste -sd,", "cd /usr && pwd && cd .. && pwd",
        "trap \"echo caught\" USR1; kill -USR1 $$; echo done", "sleep 0.1 & wait $!; echo $?", "ls -d /usr/include/infiniband /dev/null"}) {
    Outcome with = run(command), without = run(command, false);
    EXPECT_EQ(with.out, without.out) << command;
    EXPECT_EQ(with.rc, without.rc) << command;
  }
  EXPECT_EQ(run("grep -h Threads /proc/self/status").out, "Threads:\t1\n");
}

TEST(Surface, NoNetdevNoDevice) {
  Outcome o = run("ls /sys/class/infiniband", true, "UHCA_NETDEV=nosuch0 UHCA_LOG=stderr");
  EXPECT_EQ(o.rc, 2);
  EXPECT_NE(o.out.find("nosuch0"), std::string::npos) << o.out;
}

}  // namespace
