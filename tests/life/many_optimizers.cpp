// Optimizers built, used and destroyed one after another in one job: what a process holds stays
// what it was. RATION_LIFE_OPTIMIZERS says how many (default 100).

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include <ration/ration.hpp>

#include "support/training.hpp"

namespace ration::test {
namespace {

struct Holdings {
  long threads = 0;
  long resident_kib = 0;
  long descriptors = 0;
  long mappings = 0;
};

Holdings holdings() {
  Holdings result;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "Threads:") words >> result.threads;
    if (name == "VmRSS:") words >> result.resident_kib;
  }
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  result.descriptors = std::distance(begin(descriptors), end(descriptors));
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++result.mappings;
  return result;
}

void one_optimizer(World& world, int stage) {
  ShardedOptimizer optimizer(world, {.stage = stage});
  optimizer.add_group(AdamW{.learning_rate = 1e-3});
  std::vector<Unit> units;
  for (const TinyUnit& unit : tiny_model()) {
    std::vector<ParameterSpec> specs;
    for (const auto& [name, shape] : unit.parameters)
      specs.push_back({.name = name, .shape = shape});
    units.push_back(optimizer.add_unit(unit.name, specs, {.keep_whole = unit.keep_whole}));
  }
  optimizer.initialize(normal(0.02, 1));
  MicroStep micro = optimizer.micro_step();
  for (Unit& unit : units) const Gathered whole = unit.gather();
  micro.begin_backward();
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    const Gathered whole = unit->gather();
    unit->gradients_ready();
  }
  optimizer.step();
}

// Returns what has grown, or nothing.
std::string growth(const Holdings& before, const Holdings& after) {
  std::string text;
  const auto check = [&](const char* what, long from, long to, long most) {
    if (to > from + most) text += fmt::format(" {} {} -> {}", what, from, to);
  };
  check("threads", before.threads, after.threads, 0);
  check("descriptors", before.descriptors, after.descriptors, 0);
  check("mappings", before.mappings, after.mappings, 16);  // of malloc
  check("resident KiB", before.resident_kib, after.resident_kib, 4096);
  return text;
}

}  // namespace
}  // namespace ration::test

int main(int argc, char** argv) {
  const char* wish = std::getenv("RATION_LIFE_OPTIMIZERS");
  const int optimizers = wish ? std::stoi(wish) : 100;
  return ration::launch(argc, argv, [&](ration::World& world) {
    using namespace ration::test;
    for (int i = 0; i < 30; ++i) one_optimizer(world, i % 4);
    const Holdings before = holdings();
    for (int i = 0; i < optimizers; ++i) one_optimizer(world, i % 4);
    const Holdings after = holdings();
    const std::string grown = growth(before, after);
    if (!grown.empty()) throw std::runtime_error("has grown:" + grown);
    std::puts(fmt::format("rank {}: flat after {} optimizers: {} threads, {} descriptors, {} KiB",
                          world.rank(), optimizers, after.threads, after.descriptors,
                          after.resident_kib)
                  .c_str());
  });
}
