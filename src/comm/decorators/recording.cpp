// Remembers what was asked and how far it came, for tests of traffic and for whoever looks into a
// failure.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/decorators/decorator.hpp"
#include "comm/decorators/flight_log.hpp"
#include "device/host/host_stream.hpp"

namespace ration {
namespace {

class RecordingControl final : public Control {
 public:
  RecordingControl(Control& inner, FlightLog& log, FlightLog::Group& group)
      : inner_(inner), log_(log), group_(group) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  void fold(std::string_view channel, const Bytes& record, const Combine& combine, Bytes& result,
            std::string_view what) override {
    FlightLog::Pending pending = log_.begin_fold(group_, channel, record.size(), what);
    inner_.fold(channel, record, combine, result, what);
    pending.done();
  }
  void abort(std::string_view reason) override { inner_.abort(reason); }
  [[nodiscard]] std::optional<std::string> aborted() const override { return inner_.aborted(); }

 private:
  Control& inner_;
  FlightLog& log_;
  FlightLog::Group& group_;
};

class RecordingDecorator final : public Decorator {
 public:
  RecordingDecorator(std::shared_ptr<Communicator> inner, std::shared_ptr<FlightLog> log,
                     std::string name)
      : Decorator(std::move(inner)),
        log_(std::move(log)),
        group_(log_->add_group(std::move(name), rank(), size())),
        control_(Decorator::control(), *log_, *group_) {}

  Sequence submit(Stream& stream, const Operation& operation) override {
    FlightLog::Pending pending = log_->begin(*group_, operation);
    const Sequence sequence = Decorator::submit(stream, operation);
    static_cast<HostStream&>(stream).enqueue([pending = std::move(pending)](bool) mutable {
      pending.done();
      return true;
    });
    return sequence;
  }

  std::unique_ptr<Stream> make_stream(const char* name, std::size_t tasks) override {
    return Decorator::make_stream(name, 2 * tasks);
  }

  std::unique_ptr<SharedShards> share(const void* shard, std::size_t bytes) override {
    FlightLog::Pending pending = log_->begin_fold(*group_, "share", 0, "share");
    auto shards = Decorator::share(shard, bytes);
    pending.done();
    return shards;
  }

  // A part writes into the same recording: what this rank sends is what is asked for.
  std::shared_ptr<Communicator> split(int color, int key) override {
    FlightLog::Pending pending = log_->begin_fold(*group_, "split", 0, "split");
    auto part = inner()->split(color, key);
    pending.done();
    return std::make_shared<RecordingDecorator>(
        std::move(part), log_, fmt::format("{}/{}:{}", group_->name(), splits_++, color));
  }

  [[nodiscard]] Control& control() override { return control_; }

 private:
  const std::shared_ptr<FlightLog> log_;
  const std::unique_ptr<FlightLog::Group> group_;
  RecordingControl control_;
  std::uint64_t splits_ = 0;
};

}  // namespace

std::string_view name_of(OperationState state) {
  switch (state) {
    case OperationState::submitted:
      return "submitted";
    case OperationState::done:
      return "done";
    case OperationState::failed:
      return "failed";
  }
  return "?";
}

std::string Recording::json() const {
  auto list = nlohmann::json::array();
  for (const RecordedOperation& o : last()) {
    nlohmann::json entry{{"group", o.group},
                         {"sequence", o.sequence},
                         {"kind", o.kind},
                         {"tag", o.tag},
                         {"sent_bytes", o.sent_bytes},
                         {"state", name_of(o.state)},
                         {"submitted_ms", o.submitted_ms}};
    if (!o.channel.empty()) entry["channel"] = o.channel;
    if (!o.matched) entry["matched"] = false;
    if (!o.type.empty()) {
      entry["type"] = o.type;
      entry["count"] = o.count;
    }
    if (o.peer >= 0) entry["peer"] = o.peer;
    if (o.history) entry["history"] = fmt::format("{:016x}", o.history);
    if (o.ended_ms >= 0) entry["ended_ms"] = o.ended_ms;
    list.push_back(std::move(entry));
  }
  // A tag that was cut, or is no UTF-8 at all, must not lose the rest.
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RecordingCommunicator make_recording(std::shared_ptr<Communicator> inner) {
  auto log = std::make_shared<FlightLog>();
  return {std::make_shared<RecordingDecorator>(std::move(inner), log, "world"), log};
}

}  // namespace ration
