#pragma once
// Trace spans: `trace::Span span("gather", unit, stream);` records from here to the end of the
// scope, when recording is on.

#include <cstdint>
#include <string_view>

#include <ration/trace.hpp>

namespace ration::trace {

bool recording();

class Span {
 public:
  /// `what` and `stream` must be literals; `detail` is copied (its first 47 characters).
  Span(const char* what, std::string_view detail, const char* stream) {
    if (recording()) begin(what, detail, stream);
  }
  ~Span() {
    if (what_) end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void begin(const char* what, std::string_view detail, const char* stream);
  void end();
  const char* what_ = nullptr;
  const char* stream_ = nullptr;
  std::int64_t start_ = 0;
  char detail_[48] = {};
};

}  // namespace ration::trace
