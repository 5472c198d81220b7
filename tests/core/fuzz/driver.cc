// Runs a fuzz target without libFuzzer: on its seeds and on what is made of them, for a number of inputs and of seconds.
//
//   <target> [--inputs N] [--seconds S] [--seed K]   these inputs
//   <target> --seed K --only N                       one of them again
//   <target> --write-seeds FOLDER                    the seeds, a file each, for libFuzzer
//   <target> FILE...                                 inputs that libFuzzer has found

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/fuzz/mutate.h"
#include "tests/core/fuzz/target.h"

// Of the sanitizers, where there is one.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace tf_strategies::fuzz {
namespace {

bool Sanitized() { return __sanitizer_set_death_callback != nullptr; }

// What a run may take, whatever the inputs say of lengths; the sanitizers keep what was freed for a while.
int64_t MostBytes() { return int64_t{Sanitized() ? 2048 : 512} << 20; }

constexpr unsigned kMostSecondsOfAnInput = 60;

struct Options {
  uint64_t inputs = 100000;
  double seconds = Sanitized() ? 4 : 1;
  uint64_t seed = 1;
  bool only = false;
  uint64_t number = 0;  // with only
};

// The input that runs now, for whoever reports its end.
const char* g_program = "";
uint64_t g_seed = 0, g_number = 0;
std::string g_file;

void SayWhichInput() {
  static bool said = false;
  if (said) return;
  said = true;
  if (!g_file.empty()) {
    std::fprintf(stderr, "This input failed; again: %s %s\n", g_program, g_file.c_str());
  } else {
    std::fprintf(stderr, "Input %llu of seed %llu failed; again: %s --seed %llu --only %llu\n",
                 static_cast<unsigned long long>(g_number), static_cast<unsigned long long>(g_seed),
                 g_program, static_cast<unsigned long long>(g_seed),
                 static_cast<unsigned long long>(g_number));
  }
}

void OnSignal(int number) {
  SayWhichInput();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void ReportTheInputOfAnEnd() {
  std::signal(SIGABRT, &OnSignal);
  std::signal(SIGALRM, &OnSignal);
  if (Sanitized()) return __sanitizer_set_death_callback(&SayWhichInput);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(number, &OnSignal);
}

// In memory of exactly its size, for the sanitizers to see what is read beyond it.
void RunInput(const std::string& input) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[input.size()]);
  if (!input.empty()) std::memcpy(exact.get(), input.data(), input.size());
  alarm(kMostSecondsOfAnInput);
  LLVMFuzzerTestOneInput(exact.get(), input.size());
  alarm(0);
}

int RunFiles(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
      std::fprintf(stderr, "%s cannot be read\n", file.c_str());
      return 1;
    }
    g_file = file;
    RunInput({std::istreambuf_iterator<char>(stream), {}});
  }
  std::printf("%zu files passed\n", files.size());
  return 0;
}

int WriteSeeds(const std::string& folder) {
  const std::vector<std::string> seeds = Seeds();
  for (size_t i = 0; i < seeds.size(); ++i) {
    const std::string file = folder + "/seed-" + std::to_string(i);
    std::ofstream stream(file, std::ios::binary);
    if (!stream.write(seeds[i].data(), static_cast<std::streamsize>(seeds[i].size()))) {
      std::fprintf(stderr, "%s cannot be written\n", file.c_str());
      return 1;
    }
  }
  return 0;
}

int64_t ResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

int RunMutations(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const std::vector<std::string> seeds = Seeds();
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  g_seed = options.seed;
  g_number = options.only ? options.number : 0;
  uint64_t ran = 0;
  do {
    RunInput(MutatedInput(seeds, g_seed, g_number));
    ++ran;
    ++g_number;
  } while (!options.only && (g_number < seeds.size() || (ran < options.inputs && Clock::now() < end)));
  std::printf("%llu inputs from %zu seeds passed, at most %lld MB resident\n",
              static_cast<unsigned long long>(ran), seeds.size(),
              static_cast<long long>(ResidentBytes() >> 20));
  if (ResidentBytes() <= MostBytes()) return 0;
  std::fprintf(stderr, "that is more than %lld MB\n", static_cast<long long>(MostBytes() >> 20));
  return 1;
}

int Usage() {
  std::fprintf(
      stderr, "usage: %s [--inputs N] [--seconds S] [--seed K [--only N]] [--write-seeds FOLDER] [FILE...]\n",
      g_program);
  return 2;
}

int Main(int count, char** arguments) {
  g_program = arguments[0];
  ReportTheInputOfAnEnd();
  Options options;
  std::vector<std::string> files;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name.rfind("--", 0) != 0) {
      files.push_back(name);
      continue;
    }
    if (++i == count) return Usage();
    const char* const value = arguments[i];
    if (name == "--inputs") {
      options.inputs = std::strtoull(value, nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value, nullptr);
    } else if (name == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--only") {
      options.only = true;
      options.number = std::strtoull(value, nullptr, 10);
    } else if (name == "--write-seeds") {
      return WriteSeeds(value);
    } else {
      return Usage();
    }
  }
  return files.empty() ? RunMutations(options) : RunFiles(files);
}

}  // namespace
}  // namespace tf_strategies::fuzz

int main(int count, char** arguments) { return tf_strategies::fuzz::Main(count, arguments); }
