// Headers that somebody made up.

#include "checkpoint/safetensors.hpp"

#include <fstream>

#include <sys/resource.h>

#include "made.hpp"
#include "support/throws.hpp"

namespace ration::test {
namespace {

std::string refused(const std::string& header, std::uint64_t data) {
  return thrown<CorruptCheckpoint>([&] { ck::parse_safetensors_header(header, data, "file"); });
}

std::string entry(const std::string& name, const std::string& shape, const std::string& offsets,
                  const std::string& dtype = "F32") {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype,
                     shape, offsets);
}

TEST(Safetensors, HeadersAreReadInAnyOrder) {
  const auto tensors = ck::parse_safetensors_header(
      "{" + entry("b", "2,3", "4,28") + R"(,"__metadata__":{"x":"y"},)" + entry("a", "", "0,4") +
          "," + entry("c", "0,9", "28,28", "BF16") + "}   ",
      28, "file");
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].count, 1);
  EXPECT_EQ(tensors[1].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(tensors[2].dtype, DType::bf16);
  EXPECT_EQ(tensors[2].count, 0);
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  ck::SafeTensor tensor;
  tensor.name = "odd \"name\"\n";
  tensor.shape = {5};
  tensor.dtype = DType::f16;
  tensor.end = 10;
  const std::string text = ck::safetensors_header(std::span(&tensor, 1), {{"k", "v\\"}});
  const auto read = ck::parse_safetensors_header(std::string_view(text).substr(8), 10, "file");
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].name, tensor.name);
  tensor.name = "\xff";
  EXPECT_THROW(ck::safetensors_header(std::span(&tensor, 1), {}), InvalidArgument);
}

TEST(Safetensors, OffsetsThatDoNotFitAreRefused) {
  EXPECT_THAT(refused("{" + entry("a", "2", "0,8") + "," + entry("b", "2", "4,12") + "}", 12),
              testing::HasSubstr("\"b\" begins at byte 4"));  // overlap
  EXPECT_THAT(refused("{" + entry("a", "2", "0,8") + "," + entry("b", "2", "12,20") + "}", 20),
              testing::HasSubstr("\"b\" begins at byte 12"));  // a hole
  EXPECT_THAT(refused("{" + entry("a", "2", "0,8") + "}", 4), testing::HasSubstr("8 bytes"));
  EXPECT_THAT(refused("{" + entry("a", "2", "0,8") + "}", 12), testing::HasSubstr("has 12"));
  EXPECT_THAT(refused("{" + entry("a", "2", "8,0") + "}", 8), testing::HasSubstr("needs 8 bytes"));
  EXPECT_THAT(refused("{" + entry("a", "3", "0,8") + "}", 8), testing::HasSubstr("needs 12 bytes"));
  EXPECT_THAT(refused("{" + entry("a", "1", "0") + "}", 4), testing::HasSubstr("two offsets"));
}

TEST(Safetensors, ShapesThatOverflowAreRefused) {
  EXPECT_THAT(refused("{" + entry("a", "4294967296,4294967296", "0,0") + "}", 0),
              testing::HasSubstr("too large a shape"));
  EXPECT_THAT(refused("{" + entry("a", "9223372036854775807", "0,0") + "}", 0),
              testing::HasSubstr("too large a shape"));
  EXPECT_THAT(refused("{" + entry("a", "18446744073709551615", "0,0") + "}", 0),
              testing::HasSubstr("too large"));
  EXPECT_THAT(refused("{" + entry("a", "-1", "0,0") + "}", 0), testing::HasSubstr("\"a\""));
  EXPECT_THAT(refused("{" + entry("a", "1.5", "0,0") + "}", 0), testing::HasSubstr("\"a\""));
  std::string many = "1";
  for (int i = 0; i < 40; ++i) many += ",1";
  EXPECT_THAT(refused("{" + entry("a", many, "0,4") + "}", 4), testing::HasSubstr("too many"));
}

TEST(Safetensors, WhatDoesNotBelongIsRefused) {
  EXPECT_THAT(refused("{" + entry("a", "1", "0,4") + "," + entry("a", "1", "4,8") + "}", 8),
              testing::HasSubstr("\"a\" is there twice"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","dtype":"F32"}})", 0),
              testing::HasSubstr("\"dtype\" is there twice"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1]}})", 0), testing::HasSubstr("lacks"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","file":[1]}})", 0), testing::HasSubstr("\"file\""));
  for (const char* text : {R"({"a":7})", R"({"a":null})", R"({"a":[1]})", R"({"a":{"dtype":{}}})",
                           R"({"a":{"shape":[[1]]}})", R"({"a":{"shape":{"b":1}}})",
                           R"({"__metadata__":{"a":1}})", R"({"__metadata__":{"a":{}}})"}) {
    EXPECT_THAT(refused(text, 0), testing::HasSubstr("none belongs")) << text;
  }
  for (const char* text : {"", "[]", " {}", "{", "{}x", "{\"a\"}", "{\"\xff\":{}}"})
    EXPECT_FALSE(refused(text, 0).empty()) << text;
  EXPECT_THROW(ck::parse_safetensors_header("{" + entry("a", "1", "0,8", "I64") + "}", 8, "file"),
               InvalidArgument);
}

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Safetensors, NestingAndLengthsNeedLittleMemory) {
  const long before = peak_kib();
  const std::string deep = "{\"a\":" + std::string(20'000'000, '[');
  EXPECT_THAT(refused(deep, 0), testing::HasSubstr("none belongs"));
  const Folder folder;
  const std::string path = folder / "m.safetensors";
  for (const std::uint64_t length :
       {std::uint64_t{1} << 62, ~std::uint64_t{0}, std::uint64_t{100} << 20, std::uint64_t{500}}) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << "{}" << std::string(98, ' ');
    file.close();
    EXPECT_THAT(thrown<CorruptCheckpoint>([&] { ck::open_foreign(path); }),
                testing::HasSubstr("claims a header"));
  }
  EXPECT_LT(peak_kib() - before, 64 << 10);
}

TEST(Safetensors, NamesThatCannotBeRegisteredAreRefused) {
  const Folder folder;
  const std::string path = folder / "m.safetensors";
  for (const char* name : {"", "/root", "a/../b", "a\\u0000b"}) {
    const std::string header = "{" + entry(name, "0", "0,0") + "}";
    const auto length = static_cast<std::uint64_t>(header.size());
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << header;
    file.close();
    EXPECT_THAT(thrown<CorruptCheckpoint>([&] { ck::open_foreign(path); }),
                testing::HasSubstr("m.safetensors"));
  }
}

}  // namespace
}  // namespace ration::test
