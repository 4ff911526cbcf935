// A manifest comes back as it was written, and nothing else is taken for one.

#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <ration/error.hpp>

#include "checkpoint/base64.hpp"
#include "checkpoint/manifest.hpp"
#include "cost.hpp"
#include "small.hpp"

namespace ration::test {
namespace {

using checkpoint::Manifest;
using checkpoint::parse_manifest;
using checkpoint::to_text;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

Manifest example() {
  Manifest manifest = small_manifest(100, DType::bf16);
  for (int rank = 0; rank < 2; ++rank) {
    manifest.shards.push_back({.file = checkpoint::shard_name(rank, 2),
                               .size = 9000,
                               .index = {.offset = 4096, .length = 80, .checksum = ~0ull},
                               .checksums = {.offset = 8192, .length = 16, .checksum = 1},
                               .rest = 0xfedcba9876543210});
  }
  return manifest;
}

std::string refused(const std::string& text) {
  try {
    parse_manifest(text, "there");
  } catch (const CorruptCheckpoint& error) {
    EXPECT_THAT(error.what(), StartsWith("there: "));
    return error.what();
  }
  return "accepted";
}

/// With a checksum that agrees.
std::string sealed(std::string text) {
  text = text.substr(0, text.rfind("\"checksum\": \""));
  return text + fmt::format("\"checksum\": \"{:016x}\"}}\n", XXH3_64bits(text.data(), text.size()));
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = to_text(example());
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return sealed(text.replace(place, from.size(), to));
}

TEST(Manifest, ComesBackAsItWasWritten) {
  Manifest manifest = example();
  auto& optimizer = manifest.optimizers[0];
  optimizer.loss_scale = 0.1 + 0.2;
  optimizer.good_steps = 17;
  optimizer.groups[0].options["epsilon"] = 1e-300;
  optimizer.units[0].flats[0].parameters[0].name = "quotes \" and \\ and \n and \xc3\xa4";
  optimizer.units[0].flats[0].parameters[0].masked = true;
  optimizer.units[0].tied.clear();
  manifest.extra["all bytes"] = [] {
    std::string bytes;
    for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
    return bytes;
  }();
  const std::string text = to_text(manifest);
  const Manifest back = parse_manifest(text, "there");
  EXPECT_EQ(to_text(back), text);
  EXPECT_EQ(back.extra, manifest.extra);
  EXPECT_EQ(back.optimizers[0].loss_scale, 0.1 + 0.2);
  EXPECT_EQ(back.optimizers[0].groups[0].options, optimizer.groups[0].options);
  EXPECT_EQ(back.optimizers[0].units[0].flats[0].parameters[0].name,
            optimizer.units[0].flats[0].parameters[0].name);
  EXPECT_EQ(back.shards[1].rest, 0xfedcba9876543210);
}

TEST(Manifest, OfWhichAnyBitIsFlippedIsRefused) {
  const std::string text = to_text(example());
  for (std::size_t byte = 0; byte < text.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << bit));
      ASSERT_NE(refused(flipped), "accepted") << byte << " " << bit;
    }
  }
}

TEST(Manifest, ThatIsCutIsRefused) {
  const std::string text = to_text(example());
  for (std::size_t size = 0; size < text.size(); ++size)
    ASSERT_NE(refused(text.substr(0, size)), "accepted") << size;
  EXPECT_NE(refused(text + "\n"), "accepted");
}

TEST(Manifest, ThatClaimsWhatCannotBeIsRefused) {
  EXPECT_NO_THROW(parse_manifest(with("\"step\": 3", "\"step\": 4"), "there"));
  EXPECT_THAT(refused(with("\"version\": 1", "\"version\": 2")), HasSubstr("version 2"));
  EXPECT_THAT(refused(with("ration-checkpoint", "safetensors")), HasSubstr("another format"));
  EXPECT_THAT(refused(with("\"step\": 3", "\"step\": -3")), HasSubstr("\"step\""));
  EXPECT_THAT(refused(with("\"step\": 3", "\"step\": \"3\"")), HasSubstr("\"step\""));
  EXPECT_THAT(refused(with("\"step\": 3", "\"step\": 3.5")), HasSubstr("\"step\""));
  EXPECT_THAT(refused(with("\"step\": 3", "\"step\": 3, \"step\": 4")), HasSubstr("twice"));
  EXPECT_THAT(refused(with("\"step\": 3", "\"step\": 3, \"new\": 4")), HasSubstr("unknown key"));
  EXPECT_THAT(refused(with("\"step\": 3,\n", "")), HasSubstr("has no \"step\""));
  EXPECT_THAT(refused(with("\"world\": 2", "\"world\": 3")), HasSubstr("world is 3"));
  EXPECT_THAT(refused(with("rank-00001-of-00002.h5", "../../etc/passwd")), HasSubstr("called"));
  EXPECT_THAT(refused(with("rank-00001-of-00002.h5", "rank-00000-of-00002.h5")),
              HasSubstr("must be rank-00001-of-00002.h5"));
  EXPECT_THAT(refused(with("\"offset\": 8192, \"length\": 16",
                           "\"offset\": 8192, \"length\": 1152921504606846976")),
              HasSubstr("are not in a file of 9000"));
  EXPECT_THAT(refused(with("\"offset\": 8192", "\"offset\": 18446744073709551615")),
              HasSubstr("are not in a file"));
  EXPECT_THAT(refused(with("fedcba9876543210", "fedcba987654321")), HasSubstr("16 hex digits"));
  EXPECT_THAT(refused(with("\"length\": 100", "\"length\": 1152921504606846976")),
              HasSubstr("too long"));
  EXPECT_THAT(refused(with("\"length\": 100", "\"length\": 99")), HasSubstr("does not fit"));
  EXPECT_THAT(refused(with("\"length\": 100", "\"length\": 101")), HasSubstr("ends after 100"));
  EXPECT_THAT(refused(with("\"shape\": [100]", "\"shape\": [-100]")), HasSubstr("\"shape\""));
  EXPECT_THAT(refused(with("\"shape\": [100]", "\"shape\": [4294967296,4294967296,4294967296]")),
              HasSubstr("elements"));
  EXPECT_THAT(refused(with("\"offset\": 0", "\"offset\": 1")), HasSubstr("does not fit"));
  EXPECT_THAT(refused(with("\"name\": \"layer.weight\"", "\"name\": \"/layer.weight\"")),
              HasSubstr("begins with"));
  EXPECT_THAT(refused(with("\"name\": \"layer.weight\"", "\"name\": \"..\"")),
              HasSubstr("holds \"..\""));
  EXPECT_THAT(refused(with("\"name\": \"layer.weight\"", "\"name\": \"\"")), HasSubstr("is empty"));
  EXPECT_THAT(refused(with("\"group\": 0", "\"group\": 1")), HasSubstr("is of group 1"));
  EXPECT_THAT(refused(with("\"dtype\": \"bf16\"", "\"dtype\": \"f64\"")), HasSubstr("f64"));
  EXPECT_THAT(refused(with("\"name\":\"parameter\"", "\"name\":\"weight\"")),
              HasSubstr("must be \"parameter\""));
  EXPECT_THAT(refused(with("\"name\":\"exp_avg\"", "\"name\":\"master\"")), HasSubstr("twice"));
  EXPECT_THAT(refused(with("\"parameter\":\"layer.weight\"", "\"parameter\":\"other\"")),
              HasSubstr("tied to \"other\""));
  EXPECT_THAT(refused(with("\"base64\"", "\"base65\"")), HasSubstr("neither text nor base64"));
  EXPECT_THAT(refused(with("\"optimizers\": [", "\"optimizers\": [1,")),
              HasSubstr("something else"));
  EXPECT_THAT(refused(sealed("{\"checksum\": \"")), testing::Not("accepted"));
}

void expect_cheap(const std::string& text, std::string_view what, std::size_t mebibytes = 50) {
  const Cost cost = cost_of([&] {
    if (refused(text) == "accepted") throw Error("it was accepted");
  });
  EXPECT_LT(cost.peak, mebibytes << 20) << what;
#if defined(NDEBUG) && !defined(RATION_SANITIZED)
  EXPECT_LT(cost.processor_seconds, 1.0) << what;
#endif
}

TEST(Manifest, ThatIsHostileTakesLittleMemory) {
  const std::string text = to_text(example());
  const std::size_t most = checkpoint::kManifestLimit - 4096;
  const auto repeated = [&](std::string_view what, std::size_t times) {
    std::string all;
    all.reserve(what.size() * times);
    for (std::size_t i = 0; i < times; ++i) all += what;
    return all;
  };
  // In place of a value, of an element of every list, and of a text.
  std::vector<std::string> texts;
  for (const std::string& bomb :
       {repeated("[", most), "[" + repeated("0,", most / 2 - 1) + "0]",
        "[" + repeated("{},", most / 3 - 1) + "{}]", "\"" + repeated("a", most) + "\"",
        repeated("{\"a\":", most / 5), "[" + repeated("\"\",", most / 3 - 1) + "0]"}) {
    texts.push_back(with("\"step\": 3", "\"step\": " + bomb));
    texts.push_back(with("\"note\": \"text\"", "\"note\": " + bomb));
    texts.push_back(with("\"shape\": [100]", "\"shape\": " + bomb));
  }
  texts.push_back(repeated("x", 2 * most));
  for (const std::string& hostile : texts) expect_cheap(hostile, hostile.substr(0, 40));
}

// Beside elements that are right, where each of them might make room for more.
TEST(Manifest, ThatHidesJunkInItsListsTakesLittleMemory) {
  const std::string text = to_text(example());
  const std::string parameter = R"({"name": "layer.weight", "shape": [100], "offset": 0, )"
                                R"("group": 0, "step_count": 3, "masked": false})";
  ASSERT_THAT(text, HasSubstr(parameter));
  std::string zeros;
  for (int i = 0; i < 19000; ++i) zeros += "0,";
  std::string junk;
  while (junk.size() + zeros.size() + parameter.size() < checkpoint::kManifestLimit - 8192)
    junk += zeros + parameter + ",";
  std::string many = zeros;
  while (many.size() + parameter.size() < checkpoint::kManifestLimit - 8192)
    many += parameter + ",";
  const std::string key(std::size_t{5} << 20, 'k');
  for (const std::string& hostile :
       {with(parameter, junk + parameter), with(parameter, many + parameter),
        with("\"step\": 3", fmt::format("\"{0}1\": 3, \"{0}2\": 3", key))}) {
    expect_cheap(hostile, "");
  }
  for (const char* element : {"1", "[]", "[[{}]]", "null", "\"text\""}) {
    EXPECT_THAT(refused(with(parameter, parameter + ", " + element)), HasSubstr("something else"))
        << element;
  }
  const std::string groups =
      text.substr(text.find("\"groups\": "), text.find("\"units\"") - text.find("\"groups\": "));
  EXPECT_THAT(refused(with(groups, "\"groups\": null, ")),
              HasSubstr("\"groups\" of an optimizer must be a list"));
}

// Entries take more memory than the shortest text of them.
TEST(Manifest, OfMoreEntriesThanAModelHasTakesLittleMemory) {
  // `begin`, then as many of `element`, with a name of its own in place of #, as there is room for.
  const auto many = [](std::string begin, const std::string& element, std::size_t most) {
    const std::size_t place = element.find('#');
    for (int i = 0; begin.size() + element.size() + 8 < most; ++i) {
      begin += element;
      begin.replace(begin.size() - element.size() + place, 1, std::to_string(i));
    }
    return begin;
  };
  const std::size_t room = checkpoint::kManifestLimit - 8192;
  const std::string unit = R"({"name": "a/unit")";
  const std::string group = R"({"rule": "AdamW", "options": {)";
  const std::string parameter = R"({"name": "layer.weight")";
  const std::string tied = R"("tied": [)";
  std::string long_shape;
  for (int i = 0; i < 9000; ++i) long_shape += "0,";
  const auto parameter_of = [](const std::string& sizes) {
    return R"({"name":"#","shape":[)" + sizes +
           R"(0],"offset":0,"group":0,"step_count":0,"masked":false},)";
  };
  expect_cheap(with(unit, many("", R"({"name":"#","tied":[],"flats":[]},)", room) + unit), "units");
  expect_cheap(with(group, many("", R"({"rule":"#","options":{}},)", room) + group), "groups");
  const std::string options = many("{\"rule\":\"r\",\"options\":{", "\"#\":1,", 80000);
  std::string groups;
  while (groups.size() + options.size() < room) groups += options + "\"z\":1}},";
  expect_cheap(with(group, groups + group), "options");
  for (const std::string& sizes : {std::string(), std::string("0,0,0,0,0,0,0,0,0,0,"), long_shape})
    expect_cheap(with(parameter, many("", parameter_of(sizes), room) + parameter), "parameters");
  expect_cheap(with(tied, many(tied, R"({"name":"#","parameter":"layer.weight"},)", room)), "tied");
  expect_cheap(with("\"step\": 3", "\"step\": " + std::string(room, '1')), "digits");
  const std::string text(std::size_t{5} << 20, 'a');
  const std::string note = R"("note": "text")";
  expect_cheap(with(note, fmt::format(R"("a": "{0}", "b": "{0}{1}")", text, '\xff')), "no UTF-8",
               20);
}

TEST(Manifest, MayHaveAGroupForEachOfManyParameters) {
  Manifest manifest = example();
  auto& optimizer = manifest.optimizers[0];
  auto& flat = optimizer.units[0].flats[0];
  const auto one = flat.parameters[0];
  optimizer.groups[0].options = {{"learning_rate", 0.1},
                                 {"beta1", 0.9},
                                 {"beta2", 0.99},
                                 {"epsilon", 1e-8},
                                 {"weight_decay", 0.01}};
  for (int i = 1; i < 10000; ++i) {
    optimizer.groups.push_back(optimizer.groups[0]);
    flat.parameters.push_back(one);
    flat.parameters.back().name = fmt::format("layer.{}.weight", i);
    flat.parameters.back().group = i;
    flat.parameters.back().offset = 128 * i;
  }
  flat.length = flat.parameters.back().offset + 100;
  const std::string text = to_text(manifest);
  EXPECT_EQ(to_text(parse_manifest(text, "there")), text);
}

TEST(Manifest, ThatIsHostileIsRefusedInFewWords) {
  const std::string lengthy(std::size_t{1} << 20, 'x');
  for (const std::string& hostile :
       {with("\"step\": 3", "\"step\": 3, \"" + lengthy + "\": 4"),
        with("\"step\": 3", "\"step\": \"" + lengthy + "\" 4"),
        with("\"dtype\": \"bf16\"", "\"dtype\": \"" + lengthy + "\"")}) {
    EXPECT_LT(refused(hostile).size(), 1000u);
  }
}

// A save that nobody could load is refused when it is made.
TEST(Manifest, ThatIsWrittenCanBeRead) {
  Manifest manifest = example();
  manifest.extra["zeros"] = std::string(std::size_t{3} << 20, '\0');
  manifest.extra["controls"] = std::string(std::size_t{1} << 20, '\1');
  EXPECT_EQ(parse_manifest(to_text(manifest), "there").extra, manifest.extra);

  const auto refused_to_write = [](const std::function<void(Manifest&)>& change) {
    Manifest changed = example();
    change(changed);
    try {
      to_text(changed);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("written");
  };
  EXPECT_THAT(refused_to_write([](Manifest& m) { m.optimizers[0].loss_scale = INFINITY; }),
              HasSubstr("loss_scale"));
  EXPECT_THAT(refused_to_write([](Manifest& m) { m.extra["\xff"] = "value"; }), HasSubstr("UTF-8"));
  EXPECT_THAT(refused_to_write([](Manifest& m) { m.optimizers[0].units[0].name = "\xff"; }),
              HasSubstr("UTF-8"));
  EXPECT_THAT(refused_to_write([](Manifest& m) {
                for (int i = 0; i < 30000; ++i) m.extra[std::to_string(i)] = "";
              }),
              HasSubstr("more than a manifest does"));
}

TEST(Base64, ComesBack) {
  for (const std::string& bytes : {std::string(), std::string("a"), std::string("ab"),
                                   std::string("abc"), std::string("\0\xff\x80", 3)}) {
    EXPECT_EQ(checkpoint::from_base64(checkpoint::to_base64(bytes)), bytes);
  }
  EXPECT_EQ(checkpoint::to_base64("any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
  for (const char* wrong : {"a", "ab=c", "=abc", "a===", "ab\n="})
    EXPECT_EQ(checkpoint::from_base64(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace ration::test
