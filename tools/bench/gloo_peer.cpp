#include <climits>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <ration/error.hpp>

#include "bench/peers.hpp"
#include "comm/gloo/signal_mask.hpp"
#include "comm/local_address.hpp"
#include "core/record.hpp"

namespace ration::tools {
namespace {

constexpr std::string_view kChannel = "bench gloo";

/// Every rank's record, one after the other.
Bytes gather_records(Control& control, const Bytes& own) {
  Bytes all;
  const auto combine = [](std::span<const Bytes> records, Bytes& combined) {
    for (const Bytes& one : records) combined.insert(combined.end(), one.begin(), one.end());
  };
  control.fold(kChannel, own, combine, all, "bench: gloo's addresses");
  return all;
}

/// What ranks set before they ask for others' keys they set in the same order, a fold each.
class FoldStore final : public gloo::rendezvous::Store {
 public:
  explicit FoldStore(Control& control) : control_(control) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    Bytes record;
    RecordWriter writer(record);
    writer.put_text(key);
    writer.put_text({data.data(), data.size()});
    const Bytes all = gather_records(control_, record);
    RecordReader reader(all);
    while (!reader.at_end()) {
      const std::string other = reader.get_text();
      values_[other] = reader.get_text();
    }
  }
  std::vector<char> get(const std::string& key) override {
    const auto found = values_.find(key);
    if (found == values_.end()) throw CommunicationError("gloo wants \"" + key + "\" too early");
    return {found->second.begin(), found->second.end()};
  }
  void wait(const std::vector<std::string>& /*keys*/) override {}

 private:
  Control& control_;
  std::map<std::string, std::string> values_;
};

std::string address_for(Control& control) {
  Bytes own;
  RecordWriter(own).put_text(network_id());
  const Bytes all = gather_records(control, own);
  bool one_host = true;
  for (RecordReader reader(all); !reader.at_end();) {
    one_host = reader.get_text() == network_id() && one_host;
  }
  const char* interface = std::getenv("RATION_INTERFACE");
  if (interface && *interface) return address_of_interface(interface);
  return one_host ? "127.0.0.1" : default_address();
}

class GlooPeer final : public Peer {
 public:
  explicit GlooPeer(Control& control) {
    const BlockedSignals blocked;  // gloo's thread inherits them
    auto device = gloo::transport::tcp::CreateDevice(address_for(control).c_str());
    auto context = std::make_shared<gloo::rendezvous::Context>(control.rank(), control.size());
    context->setTimeout(operation_timeout());
    FoldStore store(control);
    context->connectFullMesh(store, device);
    context_ = std::move(context);
  }

  [[nodiscard]] std::string_view name() const override { return "gloo"; }

  // Its reduce-scatter counts bytes in int.
  [[nodiscard]] bool can(const Work& work) const override {
    return work.kind != OperationKind::reduce_scatter || whole(work) <= INT_MAX / sizeof(float);
  }

  const float* run(const Work& work) override {
    const WithoutSigpipe guard;
    switch (work.kind) {
      case OperationKind::reduce_scatter:
        reduce_scatter(work);
        return nullptr;
      case OperationKind::all_gather:
        all_gather(work);
        return work.recv;
      default:
        all_reduce(work);
        return work.recv;
    }
  }

 private:
  [[nodiscard]] std::size_t whole(const Work& work) const {
    return work.count * static_cast<std::size_t>(context_->size);
  }

  // In place. It is made for a buffer, and kept for the next call. No result to look at: all ranks
  // but 0 move their sums to the buffer's front while they may still be sending from there, so that
  // now and then a sum is wrong. It takes the time that it takes all the same.
  void reduce_scatter(const Work& work) {
    if (!reduce_scatter_ || work.send != made_for_.send || work.count != made_for_.count) {
      reduce_scatter_.reset();
      const std::vector<int> counts(static_cast<std::size_t>(context_->size),
                                    static_cast<int>(work.count));
      reduce_scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
          context_, std::vector<float*>{work.send}, static_cast<int>(whole(work)), counts);
      made_for_ = work;
    }
    reduce_scatter_->run();
  }

  void all_gather(const Work& work) {
    gloo::AllgatherOptions options(context_);
    options.setOutput(work.recv, whole(work));
    gloo::allgather(options);
  }

  void all_reduce(const Work& work) {
    gloo::AllreduceOptions options(context_);
    options.setInput(work.send, whole(work));
    options.setOutput(work.recv, whole(work));
    options.setReduceFunction([](void* to, const void* a, const void* b, std::size_t n) {
      gloo::sum<float>(to, a, b, n);
    });
    gloo::allreduce(options);
  }

  std::shared_ptr<gloo::Context> context_;
  Work made_for_;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> reduce_scatter_;
};

}  // namespace

std::unique_ptr<Peer> make_gloo_peer(Control& control) {
  return std::make_unique<GlooPeer>(control);
}

}  // namespace ration::tools
