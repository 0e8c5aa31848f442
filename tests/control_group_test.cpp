// Limits of control groups, read from machines made of files.
#include "core/control_group.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "core/temporary_folder.hpp"

namespace rooflane {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

struct Files {
  TemporaryFolder folder;
  const std::string& root = folder.path();

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
};

// As systemd mounts it.
struct Version2 : Files {
  explicit Version2(const std::string& group) {
    write("proc/self/mountinfo",
          "22 28 0:20 / /proc rw - proc proc rw\n"
          "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate");
    write("proc/self/cgroup", "0::" + group);
  }
};

TEST_CASE("the tightest memory limit from the own group up to the root holds") {
  const Version2 files("/system.slice/slurmstepd.scope/job_7/step_0");
  CHECK(control_group_limit(files.root) == no_limit);
  CHECK(control_group_free(files.root) == no_limit);
  const std::string scope = "sys/fs/cgroup/system.slice/slurmstepd.scope/";
  files.write("sys/fs/cgroup/system.slice/memory.max", "max");
  files.write(scope + "memory.max", "9000");
  files.write(scope + "memory.current", "8500");
  files.write(scope + "memory.stat", "anon 100\ninactive_file 400\nactive_file 7");
  CHECK(control_group_limit(files.root) == 9000);
  CHECK(control_group_free(files.root) == 900);
  files.write(scope + "job_7/memory.max", "5000");
  files.write(scope + "job_7/memory.current", "1000");
  CHECK(control_group_limit(files.root) == 5000);
  CHECK(control_group_free(files.root) == 900);  // the outer one is fuller
  files.write(scope + "job_7/step_0/memory.max", "700");
  files.write(scope + "job_7/step_0/memory.current", "800");
  CHECK(control_group_limit(files.root) == 700);
  CHECK(control_group_free(files.root) == 0);
  files.write(scope + "job_8/memory.max", "1");  // another's
  CHECK(control_group_limit(files.root) == 700);
}

TEST_CASE("version 1, whose controllers have hierarchies of their own, mounted where they like") {
  const Files files;
  files.write("proc/self/mountinfo",
              "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
              "32 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
              "33 31 0:30 / /elsewhere/memory rw - cgroup cgroup rw,memory\n"
              "34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct");
  files.write("proc/self/cgroup",
              "4:memory:/slurm/job_7\n3:cpu,cpuacct:/slurm/job_9\n0::/user.slice");
  files.write("elsewhere/memory/memory.limit_in_bytes", "9223372036854771712");
  files.write("elsewhere/memory/slurm/job_7/memory.limit_in_bytes", "4096");
  files.write("elsewhere/memory/slurm/job_7/memory.usage_in_bytes", "4000");
  files.write("elsewhere/memory/slurm/job_7/memory.stat",
              "inactive_file 1\ntotal_inactive_file 24");
  files.write("elsewhere/memory/slurm/job_9/memory.limit_in_bytes", "1");
  CHECK(control_group_limit(files.root) == 4096);
  CHECK(control_group_free(files.root) == 120);
  const std::string group = "sys/fs/cgroup/cpu,cpuacct/slurm/job_9/";
  files.write(group + "cpu.cfs_period_us", "100000");
  files.write(group + "cpu.cfs_quota_us", "-1");
  CHECK(!control_group_cpus(files.root));
  files.write(group + "cpu.cfs_quota_us", "150000");
  CHECK(control_group_cpus(files.root) == 1.5);
}

TEST_CASE("the smallest quota of CPUs holds as well") {
  const Version2 files("/a/b");
  files.write("sys/fs/cgroup/a/cpu.max", "50000 100000");
  files.write("sys/fs/cgroup/a/b/cpu.max", "300000 100000");
  CHECK(control_group_cpus(files.root) == 0.5);
}

TEST_CASE("a container sees its part of the groups, whatever its own is called outside") {
  const auto limit = [](const std::string& mounted, const std::string& group) {
    const Files files;
    files.write("proc/self/mountinfo",
                "30 22 0:26 " + mounted + " /sys/fs/cgroup ro - cgroup2 cgroup rw");
    files.write("proc/self/cgroup", "0::" + group);
    files.write("sys/fs/cgroup/memory.max", "3000");
    files.write("sys/fs/cgroup/inner/memory.max", "2000");
    return control_group_limit(files.root);
  };
  CHECK(limit("/docker/1f", "/docker/1f") == 3000);         // the host's names
  CHECK(limit("/docker/1f", "/docker/1f/inner") == 2000);   // and a group within
  CHECK(limit("/docker/1f", "/docker/1ff/inner") == 3000);  // a namesake's
  CHECK(limit("/", "/") == 3000);                           // names of its own
  CHECK(limit("/", "/inner") == 2000);
  CHECK(limit("/", "/../inner") == 3000);  // moved out of its view
}

TEST_CASE("nothing to be read is no limit") {
  const Files files;
  CHECK(control_group_limit(files.root) == no_limit);
  CHECK(!control_group_cpus(files.root));
  files.write("proc/self/mountinfo", "30 22\nrubbish - cgroup2\n - \n");
  files.write("proc/self/cgroup", "no colon\none:only");
  CHECK(control_group_limit(files.root) == no_limit);
}

}  // namespace
}  // namespace rooflane
