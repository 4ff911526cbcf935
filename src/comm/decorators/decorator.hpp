#pragma once
// What every decorator does with the calls it does not care for: passes them on.

#include <memory>
#include <utility>

#include "comm/communicator.hpp"

namespace ration {

class Decorator : public Communicator {
 public:
  explicit Decorator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] std::string_view backend() const override { return inner_->backend(); }
  void depart() override { inner_->depart(); }
  Sequence submit(Stream& stream, const Operation& operation) override {
    return inner_->submit(stream, operation);
  }
  void release(Stream& stream, Sequence sequence) override { inner_->release(stream, sequence); }
  std::unique_ptr<SharedShards> share(const void* shard, std::size_t bytes) override {
    return inner_->share(shard, bytes);
  }
  std::unique_ptr<Stream> make_stream(const char* name, std::size_t tasks) override {
    return inner_->make_stream(name, tasks);
  }
  std::unique_ptr<Memory> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  std::shared_ptr<Communicator> split(int color, int key) override = 0;  // decorated again
  [[nodiscard]] Control& control() override { return inner_->control(); }
  [[nodiscard]] std::uint64_t sent_bytes() const override { return inner_->sent_bytes(); }

 protected:
  [[nodiscard]] const std::shared_ptr<Communicator>& inner() const { return inner_; }

 private:
  std::shared_ptr<Communicator> inner_;
};

}  // namespace ration
