#include "comm/mpi/mpi.hpp"

#include <utility>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "comm/mpi/session.hpp"

namespace ration {
namespace {

class MpiMessage final : public Message {
 public:
  MpiMessage(std::shared_ptr<Session> session, Progress& progress,
             std::shared_ptr<Transfer> transfer)
      : session_(std::move(session)), progress_(progress), transfer_(std::move(transfer)) {}
  ~MpiMessage() override {
    if (transfer_->held.load(std::memory_order_acquire)) progress_.withdraw(transfer_);
  }
  MpiMessage(const MpiMessage&) = delete;
  MpiMessage& operator=(const MpiMessage&) = delete;

  bool wait(Deadline deadline) override {
    const auto ended = [this] { return state() != Transfer::State::moving; };
    if (!ended() && (deadline <= Clock::now() || !transfer_->signal.wait(ended, deadline)))
      return false;
    if (state() == Transfer::State::done) return true;
    if (!transfer_->connection) throw CommunicationError(transfer_->error);
    throw ConnectionLost(transfer_->peer, transfer_->error);
  }

 private:
  [[nodiscard]] Transfer::State state() const {
    return transfer_->state.load(std::memory_order_acquire);
  }

  const std::shared_ptr<Session> session_;
  Progress& progress_;  // the session's
  const std::shared_ptr<Transfer> transfer_;
};

class MpiMessages final : public Messages {
 public:
  MpiMessages(std::shared_ptr<Session> session, Progress& progress)
      : session_(std::move(session)), progress_(progress) {}

  [[nodiscard]] std::string_view name() const override { return "mpi"; }

  std::unique_ptr<Message> send(int peer, std::uint32_t tag, const void* data,
                                std::size_t bytes) override {
    return post(Transfer::Way::send, peer, tag, const_cast<void*>(data), bytes);
  }
  std::unique_ptr<Message> receive(int peer, std::uint32_t tag, void* data,
                                   std::size_t bytes) override {
    return post(Transfer::Way::receive, peer, tag, data, bytes);
  }

 private:
  std::unique_ptr<Message> post(Transfer::Way way, int peer, std::uint32_t tag, void* data,
                                std::size_t bytes) {
    auto transfer = std::make_shared<Transfer>(way, peer, static_cast<int>(tag),
                                               static_cast<std::byte*>(data), bytes);
    auto message = std::make_unique<MpiMessage>(session_, progress_, transfer);
    progress_.post(std::move(transfer));
    return message;
  }

  const std::shared_ptr<Session> session_;
  Progress& progress_;  // the session's
};

}  // namespace

std::shared_ptr<Messages> make_mpi(std::shared_ptr<MpiSession> session, std::size_t piece) {
  auto own = std::static_pointer_cast<Session>(std::move(session));
  Progress& progress = own->start(piece);
  return std::make_shared<MpiMessages>(std::move(own), progress);
}

}  // namespace ration
