// Gives every operation the rolling fingerprint of all up to it, which the backend carries along
// and compares. The tag counts too: two units of one size, swapped, look alike otherwise.

#include <string_view>

#include "comm/decorators/decorator.hpp"
#include "comm/decorators/decorators.hpp"

namespace ration {
namespace {

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

class Checked final : public Decorator {
 public:
  using Decorator::Decorator;

  Sequence submit(Stream& stream, const Operation& operation) override {
    if (!is_matched_by_all(operation)) return Decorator::submit(stream, operation);
    Operation known = operation;
    history_ = combine_fingerprints(history_, fingerprint(operation));
    history_ = combine_fingerprints(history_, hash_of(operation.tag)) | 1;  // never 0
    known.history = history_;
    return Decorator::submit(stream, known);
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    return make_checked(inner()->split(color, key));
  }

 private:
  static bool is_matched_by_all(const Operation& operation) {
    if (operation.kind == OperationKind::send || operation.kind == OperationKind::recv) {
      return false;
    }
    return !operation.shards || !operation.shards->one_sided();
  }

  std::uint64_t history_ = 1;
};

}  // namespace

std::shared_ptr<Communicator> make_checked(std::shared_ptr<Communicator> inner) {
  return std::make_shared<Checked>(std::move(inner));
}

}  // namespace ration
