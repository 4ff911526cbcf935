#pragma once
// What a call throws: the type exactly, the text as a string to match.

#include <mutex>
#include <string>
#include <typeinfo>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/training.hpp"

namespace ration::test {

/// The text of the E that `function` throws. Anything else, a class derived from E too, fails the
/// test.
template <class E, class Function>
std::string thrown(const Function& function) {
  try {
    function();
  } catch (const std::exception& error) {
    EXPECT_EQ(std::string(typeid(error).name()), typeid(E).name()) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// Runs `body` on `ranks` threads, every one of which must throw an E; the texts by rank.
template <class E, class Body>
std::vector<std::string> thrown_on_all(int ranks, const Body& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  with_ranks(ranks, [&](const ProcessGroup& group) {
    texts[static_cast<std::size_t>(group.rank())] = thrown<E>([&] { body(group); });
  });
  return texts;
}

}  // namespace ration::test
