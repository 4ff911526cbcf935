#pragma once
// What the suite runs over: every backend, bare and decorated, and several numbers of ranks.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bounce.hpp"
#include "comm/decorators/decorators.hpp"
#include "comm/threads/threads.hpp"
#include "support/process_ranks.hpp"

namespace ration {

using Ranks = std::vector<std::shared_ptr<Communicator>>;

struct Backend {
  std::string name;
  std::function<Ranks(int ranks)> make;
  std::vector<int> ranks{1, 2, 3, 5, 8};
};

inline Ranks make_backend_threads(int ranks, ThreadsOptions::Mode mode, bool checked) {
  Ranks result = make_threads(ranks, {.mode = mode});
  if (checked) {
    for (auto& communicator : result) communicator = make_checked(communicator);
  }
  return result;
}

// With sanitizers every operation is seen once a kind of group; the release build sees more ranks.
#ifdef RATION_SANITIZED
inline const std::vector<int> kProcessRanks{3};
#else
inline const std::vector<int> kProcessRanks{1, 2, 3, 5, 8};
#endif

/// `bounce`: through memory that peers on the same host read.
inline Backend between_processes(const std::string& name, ProcessRanks options, bool bounce,
                                 std::vector<int> several = kProcessRanks) {
  return {name,
          [options, bounce](int ranks) {
            Ranks result = make_process_ranks(ranks, options);
            for (auto& communicator : result) {
              if (bounce) communicator = std::make_shared<Bounce>(communicator);
            }
            return result;
          },
          std::move(several)};
}

/// Where not empty: what the suite runs over instead of the backends below.
inline std::vector<Backend> other_backends;

inline std::vector<Backend> bare_backends() {
  if (!other_backends.empty()) return other_backends;
  using Mode = ThreadsOptions::Mode;
  return {{"direct", [](int ranks) { return make_backend_threads(ranks, Mode::direct, false); }},
          {"streams", [](int ranks) { return make_backend_threads(ranks, Mode::streams, false); }},
          between_processes("shared", {{"one"}, Mode::direct}, true),
          between_processes("messages", {{""}, Mode::streams}, false),
          // Two on one host and one on the other, and so on.
          between_processes("two_hosts", {{"one", "one", "two"}, Mode::streams}, true, {3, 8}),
          between_processes("two_hosts_direct", {{"one", "two"}, Mode::direct}, false, {3}),
          between_processes("shared_streams", {{"one"}, Mode::streams}, true, {3}),
          between_processes("unreadable", {{"one"}, Mode::direct}, false, {3})};
}

inline std::vector<Backend> checked_backends() {
  if (!other_backends.empty()) return {};
  using Mode = ThreadsOptions::Mode;
  return {{"checked", [](int ranks) { return make_backend_threads(ranks, Mode::direct, true); }},
          {"checked_streams",
           [](int ranks) { return make_backend_threads(ranks, Mode::streams, true); }}};
}

inline std::vector<Backend> backends() {
  std::vector<Backend> all = bare_backends();
  for (const Backend& backend : checked_backends()) all.push_back(backend);
  return all;
}

struct Case {
  Backend backend;
  int ranks = 1;
};

inline void PrintTo(const Case& c, std::ostream* out) {
  *out << c.backend.name << " x " << c.ranks;
}

/// A test over every backend and number of ranks.
class OnEveryBackend : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] int ranks() const { return GetParam().ranks; }
  [[nodiscard]] Ranks make() const { return GetParam().backend.make(ranks()); }
};

/// With `least` ranks or more.
inline std::vector<Case> cases(const std::vector<Backend>& backends, int least = 1) {
  std::vector<Case> result;
  for (const Backend& backend : backends) {
    for (const int ranks : backend.ranks) {
      if (ranks >= least) result.push_back({backend, ranks});
    }
  }
  return result;
}

inline std::string case_name(const testing::TestParamInfo<Case>& info) {
  return info.param.backend.name + "_" + std::to_string(info.param.ranks);
}

}  // namespace ration
