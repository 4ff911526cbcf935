// Heap blocks asked for in a step, and held after it.

#include <atomic>
#include <cstdlib>
#include <new>

#include "support/throws.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<long> asked{0};
std::atomic<long> asked_bytes{0};
std::atomic<long> held{0};

void* count_and_allocate(std::size_t size, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) {
    ++asked;
    asked_bytes += static_cast<long>(size);
  }
  ++held;
  void* memory = alignment
                     ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                     : std::malloc(size ? size : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}

void count_and_free(void* memory) {
  if (memory) --held;
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) {
  return count_and_allocate(size, 0);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return count_and_allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  count_and_free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  count_and_free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  count_and_free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  count_and_free(memory);
}

namespace ration::test {
namespace {

struct Counted {
  double blocks_a_step = 0;  // and rank
  double bytes_a_step = 0;
  long held_after_10 = 0;
  long held_after_200 = 0;
};

// Handles are taken before, so that what is counted is the library's.
Counted count(int stage, int micro_steps, ThreadsOptions::Mode mode) {
  constexpr int kRanks = 4;
  constexpr int kCounted = 6;
  Counted counted;
  with_ranks(kRanks,
             [&](const ProcessGroup& group) {
               TinyTrainer trainer(group, {.config = {.stage = stage, .micro_steps = micro_steps}});
               ShardedOptimizer& optimizer = trainer.optimizer();
               const std::vector<Unit> units = optimizer.units();
               std::vector<std::vector<Parameter>> parameters;
               for (const Unit& unit : units) parameters.push_back(trainer.parameters_of(unit));
               const auto step = [&] {
                 for (int i = 0; i < micro_steps; ++i) {
                   const MicroStep micro = optimizer.micro_step(i, micro_steps);
                   for (const Unit& unit : units) const Gathered weights = unit.gather();
                   micro.begin_backward();
                   for (std::size_t u = units.size(); u-- > 0;) {
                     const Gathered weights = units[u].gather();
                     for (const Parameter& p : parameters[u]) {
                       float* gradient = units[u].gradient<float>(p);
                       for (std::int64_t e = 0; e < p.count(); ++e) gradient[e] += 0.5f;
                     }
                     units[u].gradients_ready();
                   }
                 }
                 optimizer.step({.clip_norm = 1.0});
               };
               const auto at_rest = [&](const std::function<void()>& act) {
                 group.barrier();
                 if (group.rank() == 0) act();
                 group.barrier();
               };
               for (int i = 1; i <= 200; ++i) {
                 if (i == 5) at_rest([] { asked = asked_bytes = 0, counting = true; });
                 step();
                 if (i == 4 + kCounted) {
                   at_rest([&] {
                     counting = false;
                     counted.blocks_a_step = static_cast<double>(asked) / kRanks / kCounted;
                     counted.bytes_a_step = static_cast<double>(asked_bytes) / kRanks / kCounted;
                     counted.held_after_10 = held;
                   });
                 }
                 if (i == 200) at_rest([&] { counted.held_after_200 = held; });
               }
             },
             {.mode = mode});
  return counted;
}

class Allocations : public testing::TestWithParam<int> {};  // stage

TEST_P(Allocations, OfAStepAreAFewSmallBlocks) {
  for (const int micro_steps : {1, 3}) {
    for (const auto mode : {ThreadsOptions::Mode::direct, ThreadsOptions::Mode::streams}) {
      const Counted counted = count(GetParam(), micro_steps, mode);
      const std::string what = "stage " + std::to_string(GetParam()) + ", " +
                               std::to_string(micro_steps) + " micro-steps";
      std::printf("%s: %.1f blocks, %.0f bytes a step and rank\n", what.c_str(),
                  counted.blocks_a_step, counted.bytes_a_step);
      EXPECT_LE(counted.blocks_a_step, 3) << what;
      EXPECT_LE(counted.bytes_a_step, 256) << what;
      EXPECT_LE(counted.held_after_200, counted.held_after_10 + 8) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Allocations, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace ration::test
