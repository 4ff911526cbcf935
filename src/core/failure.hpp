#pragma once
// An error as data, so that several threads can throw the same one: each throws its own object, of
// the same type and text.

#include <string>

namespace ration {

struct Failure {
  enum class Kind {
    error,
    invalid_argument,
    out_of_memory,
    io_error,
    corrupt_checkpoint,
    communication_error,
    timeout,
    remote_error
  };
  Kind kind = Kind::error;
  std::string text;

  [[noreturn]] void raise() const;

  /// What is being caught; call inside a catch block. A type that is not ours becomes `Error`.
  static Failure current();
};

}  // namespace ration
