#pragma once
// What the tests of a model's life are repeated for.

#include <ostream>

#include "comm/threads/threads.hpp"

namespace ration::test {

struct Setting {
  int stage;
  ThreadsOptions::Mode mode;
};

inline void PrintTo(const Setting& s, std::ostream* out) {
  *out << "stage " << s.stage
       << (s.mode == ThreadsOptions::Mode::direct ? ", direct" : ", streams");
}

}  // namespace ration::test
