// Names, and tensors that are registered twice.

#include <ration/error.hpp>

#include "support/throws.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// An optimizer of one rank with a group, a unit "u" and in it a parameter "w" of 4 elements.
class Names : public testing::Test {
 protected:
  Names() : optimizer_(ProcessGroup(make_threads(1)[0]), {.stage = 1}) {
    optimizer_.add_group(SGD{});
    optimizer_.add_unit("u", {{.name = "w", .shape = {4}}});
  }

  std::string refused(std::vector<ParameterSpec> specs, std::string unit = "v") {
    const std::string text =
        thrown<InvalidArgument>([&] { optimizer_.add_unit(std::move(unit), std::move(specs)); });
    EXPECT_EQ(optimizer_.units().size(), 1u) << "a refused unit leaves nothing behind";
    EXPECT_EQ(optimizer_.parameters().size(), 1u);
    return text;
  }

  ShardedOptimizer optimizer_;
};

TEST_F(Names, EmptyOnesAreRefused) {
  EXPECT_THAT(refused({{.name = "", .shape = {1}}}), HasSubstr("parameter name \"\" is empty"));
  EXPECT_THAT(refused({}, ""), HasSubstr("unit name \"\" is empty"));
}

TEST_F(Names, ThatWouldLeaveACheckpointsFolderAreRefused) {
  EXPECT_THAT(refused({{.name = "a/../b"}}), AllOf(HasSubstr("a/../b"), HasSubstr("\"..\"")));
  EXPECT_THAT(refused({{.name = "/etc/x"}}), AllOf(HasSubstr("/etc/x"), HasSubstr("\"/\"")));
  EXPECT_THAT(refused({}, "../u"), HasSubstr("../u"));
}

TEST_F(Names, WithANulAreRefusedAndShownWhole) {
  EXPECT_THAT(refused({{.name = std::string("a\0b", 3)}}),
              AllOf(HasSubstr("\"a\\0b\""), HasSubstr("NUL")));
}

TEST_F(Names, AreGivenOnce) {
  EXPECT_THAT(refused({{.name = "w"}}), AllOf(HasSubstr("\"w\""), HasSubstr("already registered")));
  EXPECT_THAT(refused({{.name = "x"}, {.name = "y"}, {.name = "x"}}),
              AllOf(HasSubstr("\"x\""), HasSubstr("already registered")));
  EXPECT_THAT(refused({{.name = "x"}}, "u"),
              AllOf(HasSubstr("unit \"u\""), HasSubstr("already registered")));
  EXPECT_THAT(refused({{.name = "x", .tied_to = "w"}, {.name = "x", .tied_to = "w"}}),
              HasSubstr("already registered"));
}

TEST_F(Names, AfterARefusalCanBeUsedAgain) {
  refused({{.name = "x"}, {.name = ""}});
  optimizer_.add_unit("v", {{.name = "x", .shape = {2}}});
  EXPECT_EQ(optimizer_.parameter("x").count(), 2);
}

TEST_F(Names, UnknownOnesAreNamed) {
  EXPECT_THAT(thrown<InvalidArgument>([&] { (void)optimizer_.parameter("q"); }),
              AllOf(HasSubstr("rank 0"), HasSubstr("\"q\"")));
  EXPECT_THAT(thrown<InvalidArgument>([&] { (void)optimizer_.units()[0]["q"]; }),
              AllOf(HasSubstr("unit \"u\""), HasSubstr("\"q\"")));
}

TEST_F(Names, OneTensorGivenTwiceIsRefusedWithBothNames) {
  std::vector<float> a(4);
  std::vector<float> b(4);
  const auto spec = [](const char* name, float* data, float* gradient) {
    return ParameterSpec{.name = name, .shape = {4}, .data = data, .gradient = gradient};
  };
  const auto both = AllOf(HasSubstr("\"x\""), HasSubstr("\"y\""), HasSubstr("tied_to"));
  EXPECT_THAT(refused({spec("x", a.data(), nullptr), spec("y", a.data(), nullptr)}), both);
  EXPECT_THAT(refused({spec("x", nullptr, b.data()), spec("y", nullptr, b.data())}), both);
  EXPECT_THAT(refused({spec("x", a.data(), b.data()), spec("y", b.data(), nullptr)}), both)
      << "one's gradient as another's data";
  EXPECT_THAT(refused({spec("x", a.data(), a.data())}),
              HasSubstr("its data and its gradient are the same memory"));
  optimizer_.add_unit("v", {spec("x", a.data(), b.data())});
  EXPECT_THAT(
      thrown<InvalidArgument>([&] { optimizer_.add_unit("t", {spec("y", a.data(), nullptr)}); }),
      both)
      << "of an earlier unit";
}

TEST_F(Names, TypesThatNoModelHasAreRefused) {
  EXPECT_THAT(refused({{.name = "x", .dtype = DType::f64}}),
              AllOf(HasSubstr("\"x\""), HasSubstr("f64"), HasSubstr("f32, bf16, f16")));
}

}  // namespace
}  // namespace ration::test
