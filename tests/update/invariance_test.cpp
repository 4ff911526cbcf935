// The same bits: on every CPU, for every cut into runs, under every floating-point control.

#include <gtest/gtest.h>
#include <xxhash.h>

#include "arithmetic/process_wide_flush.hpp"
#include "model.hpp"

namespace ration {
namespace {

using testing::all_types;
using testing::describe;
using testing::kRules;
using testing::Model;
using testing::random_floats;
using testing::Types;
using update::WeightKind;

std::uint64_t digest(const Model& model) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  XXH3_64bits_update(state, model.weight.data(), model.weight.size());
  if (model.types.kind != WeightKind::own) {
    const std::size_t bytes = model.types.kind == WeightKind::split ? 2 : 4;
    XXH3_64bits_update(state, model.master.data(), model.count() * bytes);
  }
  for (const auto& array : model.state) XXH3_64bits_update(state, array.data(), array.size());
  const std::uint64_t result = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return result;
}

// Trains `count` elements for some steps, each in pieces that end at `cuts`.
Model train(std::size_t level, const Rule& rule, const Types& types, std::size_t count,
            const std::vector<std::size_t>& cuts) {
  Model model(rule, types, random_floats(count, 1, 1.0f));
  for (std::int64_t step = 1; step <= 4; ++step) {
    std::vector<float> gradients = random_floats(count, static_cast<std::uint32_t>(step), 1.0f);
    gradients[count / 2] = 1e-40f;  // an fp32 denormal
    gradients[count / 3] = 0.0f;
    model.set_gradient(gradients);
    std::size_t first = 0;
    for (const std::size_t cut : cuts) {
      update::apply_at(level, rule, model.run(first, cut - first, step, 0.7f));
      first = cut;
    }
    update::apply_at(level, rule, model.run(first, count - first, step, 0.7f));
  }
  return model;
}

TEST(SameBits, AtEveryLevelForEveryRuleAndType) {
  for (const Rule& rule : kRules) {
    for (const Types& types : all_types()) {
      const std::uint64_t baseline = digest(train(0, rule, types, 2503, {}));
      for (std::size_t level = 1; level < update::levels().size(); ++level) {
        ASSERT_EQ(digest(train(level, rule, types, 2503, {})), baseline)
            << update::name_of(rule) << " " << update::levels()[level] << " " << describe(types);
      }
    }
  }
}

TEST(SameBits, HoweverAParameterIsCutIntoRuns) {
  const std::vector<std::vector<std::size_t>> cuts = {
      {1}, {2, 3, 5, 8, 13}, {512, 1024}, {511, 1025, 1537}, {0, 0, 2502, 2503}};
  const std::size_t level = update::levels().size() - 1;
  for (const Rule& rule : kRules) {
    for (const Types& types : all_types()) {
      const std::uint64_t whole = digest(train(level, rule, types, 2503, {}));
      for (const auto& cut : cuts) {
        ASSERT_EQ(digest(train(level, rule, types, 2503, cut)), whole)
            << update::name_of(rule) << " " << describe(types);
      }
    }
  }
}

TEST(SameBits, WhereElementIndicesPass32Bits) {
  const Rule rule = AdamW{};
  for (std::size_t level = 0; level < update::levels().size(); ++level) {
    const auto trained = [&](std::size_t cut) {
      Model model(rule, {.state = DType::bf16}, std::vector<float>(100, 1.0f));
      model.set_gradient(std::vector<float>(100, 0.777f));
      update::Run run = model.run(0, cut, 1);
      run.first_element = (1ull << 32) - 50;
      update::apply_at(level, rule, run);
      run = model.run(cut, 100 - cut, 1);
      run.first_element = (1ull << 32) - 50 + cut;
      update::apply_at(level, rule, run);
      return digest(model);
    };
    EXPECT_EQ(trained(50), trained(100));
    EXPECT_EQ(trained(17), trained(100));
  }
}

TEST(SameBits, InAProcessThatFlushesDenormalsAndRoundsUp) {
  for (const Rule& rule : kRules) {
    for (const Types& types : all_types()) {
      for (std::size_t level = 0; level < update::levels().size(); ++level) {
        const std::uint64_t expected = digest(train(level, rule, types, 700, {}));
        const std::vector<float> start = random_floats(700, 1, 1.0f);
        std::uint64_t flushed = 0;
        {
          Model model(rule, types, start);
          std::vector<std::vector<float>> gradients;
          for (std::uint32_t step = 1; step <= 4; ++step) {
            gradients.push_back(random_floats(700, step, 1.0f));
            gradients.back()[350] = 1e-40f;
            gradients.back()[233] = 0.0f;
          }
          for (std::int64_t step = 1; step <= 4; ++step) {
            model.set_gradient(gradients[static_cast<std::size_t>(step - 1)]);
            const testing::ProcessWideFlush flush;
            update::apply_at(level, rule, model.run(0, 700, step, 0.7f));
          }
          flushed = digest(model);
        }
        ASSERT_EQ(flushed, expected) << update::name_of(rule) << " " << describe(types);
      }
    }
  }
}

TEST(FloatingPointControl, KeepsAGradientOf1em40AndIsRestored) {
  const Rule rule = SGD{.learning_rate = 1.0};
  Model model(rule, Types{}, {0.0f});
  model.set_gradient({1e-40f});
  {
    const testing::ProcessWideFlush flush;
    const bool flushed = testing::flushes();
    update::apply(rule, model.run(0, 1, 1));
    EXPECT_EQ(testing::flushes(), flushed);
  }
  EXPECT_EQ(std::bit_cast<std::uint32_t>(model.weights()[0]),
            std::bit_cast<std::uint32_t>(-1e-40f));
}

TEST(FloatingPointControl, IsRestoredWhenARuleThrows) {
  CustomRule custom;
  custom.name = "throws";
  custom.update = [](const RuleRun&) { throw std::runtime_error("no"); };
  const Rule rule = custom;
  Model model(rule, Types{}, {1.0f});
  const testing::ProcessWideFlush flush;
  const bool flushed = testing::flushes();
  EXPECT_THROW(update::apply(rule, model.run(0, 1, 1)), std::runtime_error);
  EXPECT_EQ(testing::flushes(), flushed);
}

// Golden values: a new compiler, a new CPU or a change of a formula shows here. In the order of
// kRules; fp32, then bf16 gradients, split master and bf16 moments.
constexpr std::uint64_t kGolden[][2] = {
    {0xfc96ebca90b0a515u, 0xcacf1395769e8074u}, {0xb9b57143484018cfu, 0xb59c7b69ab180036u},
    {0xf3a491694b81e8e0u, 0x714ee0fb30c60d7fu}, {0xd18205240c4d5c81u, 0xc777eccf60957ad3u},
    {0x7e234dca33cd3215u, 0xc966de1994a84d3eu}, {0x05c53d333c2e9b84u, 0xcabaae32bde937bbu},
    {0xb1f0518ad9690161u, 0xac19a3fc4aa08441u},
};

TEST(SameBits, AsOnEveryOtherMachine) {
  std::size_t index = 0;
  for (const Rule& rule : kRules) {
    for (std::size_t level = 0; level < update::levels().size(); ++level) {
      EXPECT_EQ(digest(train(level, rule, Types{}, 5003, {})), kGolden[index][0])
          << update::name_of(rule) << " " << index << " " << update::levels()[level];
      const Types small = {DType::bf16, DType::bf16, WeightKind::split, DType::bf16};
      EXPECT_EQ(digest(train(level, rule, small, 5003, {})), kGolden[index][1])
          << update::name_of(rule) << " " << index << " " << update::levels()[level];
    }
    ++index;
  }
}

}  // namespace
}  // namespace ration
