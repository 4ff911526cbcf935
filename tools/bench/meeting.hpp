#pragma once
// How ranks begin together, and agree on how long it took.

#include <algorithm>
#include <memory>

#include "comm/communicator.hpp"
#include "core/record.hpp"

namespace ration::tools {

class Meeting {
 public:
  explicit Meeting(Communicator& communicator)
      : communicator_(communicator), stream_(communicator.make_stream("bench")) {}

  /// All ranks go on at about the same moment.
  void begin() {
    communicator_.submit(*stream_, {.kind = OperationKind::barrier, .tag = "bench"});
    stream_->synchronize();
  }

  /// The longest of all ranks' times; whoever is done earlier sleeps until then.
  double longest(double seconds) {
    const auto combine = [](std::span<const Bytes> records, Bytes& result) {
      double most = 0;
      for (const Bytes& record : records) most = std::max(most, read_plain<double>(record));
      RecordWriter(result).put(most);
    };
    Bytes result;
    communicator_.control().fold("bench", plain_record(seconds), combine, result, "bench: times");
    return read_plain<double>(result);
  }

 private:
  Communicator& communicator_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace ration::tools
