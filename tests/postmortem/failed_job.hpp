#pragma once
// A job of threads that leaves its records in a folder of its own.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <unistd.h>

#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "comm/decorators/decorators.hpp"
#include "comm/postmortem.hpp"
#include "comm/threads/threads.hpp"
#include "support/ranks.hpp"

namespace ration::test {

/// A folder that is gone afterwards, and where records go meanwhile.
class RecordFolder {
 public:
  RecordFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "ration-postmortem-XXXXXX";
    path_ = mkdtemp(pattern.data());
    setenv("RATION_POSTMORTEM_DIR", path_.c_str(), 1);
  }
  ~RecordFolder() {
    unsetenv("RATION_POSTMORTEM_DIR");
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  RecordFolder(const RecordFolder&) = delete;
  RecordFolder& operator=(const RecordFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream stream(file(name));
    return {std::istreambuf_iterator<char>(stream), {}};
  }

 private:
  std::filesystem::path path_;
};

/// Runs `body` on every rank; each then leaves its record, with what it threw.
inline void run_failing_job(int ranks, const std::function<void(int rank, Communicator& c)>& body) {
  const auto communicators = make_threads(ranks);
  run_ranks(ranks, [&](int rank) {
    const auto [inner, recording] = make_recording(communicators[static_cast<std::size_t>(rank)]);
    const auto c = make_checked(inner);
    std::string error;
    try {
      body(rank, *c);
    } catch (const RemoteError& e) {
      error = e.what();
    } catch (const std::exception& e) {
      error = e.what();
      c->abort(error);
    }
    EXPECT_NE(write_postmortem(*recording, rank, ranks, error), "");
  });
}

/// One collective of all ranks, waited for.
inline void all_reduce(Communicator& c, Stream& stream, const char* tag, std::size_t count = 1) {
  std::vector<double> values(count);
  c.submit(stream, {.kind = OperationKind::all_reduce,
                    .count = count,
                    .type = DType::f64,
                    .send = values.data(),
                    .recv = values.data(),
                    .tag = tag});
  stream.synchronize();
}

}  // namespace ration::test
