#include "checkpoint/save.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "checkpoint/agreement.hpp"
#include "checkpoint/folders.hpp"
#include "core/log.hpp"
#include "core/record.hpp"
#include "core/timeout.hpp"
#include "io/file.hpp"

namespace ration::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

// How long ranks write before they hear of each other: short beside the deadline, so that a slow
// disk is no missing rank, and short enough that one rank's error stops the others soon.
Clock::duration round_time() {
  return std::min<Clock::duration>(operation_timeout() / 4, std::chrono::seconds(1));
}

// A rank's share of a file, in the order of the file.
struct Share {
  const SavedPart* part = nullptr;
  int first_flat = 0;  ///< of the part, in the manifest's numbering
};

// One rank's way through the save.
class Save {
 public:
  Save(Control& control, const SaveRequest& request, std::span<const SavedPart* const> parts)
      : control_(control), request_(request) {
    manifest_.step = request.step;
    manifest_.extra = request.extra;
    int flats = 0;
    for (const SavedPart* part : parts) {
      const OptimizerEntry& described = part->describe();
      manifest_.optimizers.push_back(described);
      for (Slice slice : part->slices()) {
        slice.flat += flats;
        slices_.push_back(slice);
        shares_.push_back({part, flats});
      }
      for (const UnitEntry& unit : described.units) flats += static_cast<int>(unit.flats.size());
    }
  }

  SaveReport run() {
    begin();
    if (manifest_.uuid.empty()) {
      return {.step = request_.step,
              .folder = temporary_.string(),
              .bytes = total_bytes_,
              .already_saved = true};
    }
    write();
    return commit();
  }

 private:
  [[nodiscard]] bool leads() const { return control_.rank() == 0; }

  [[nodiscard]] std::uint64_t own_bytes() const {
    const std::vector<FlatPlace> places = flats_of(manifest_);
    std::uint64_t sum = 0;
    for (const Slice& slice : slices_) {
      const FlatEntry& flat = flat_at(manifest_, places[static_cast<std::size_t>(slice.flat)]);
      sum += static_cast<std::uint64_t>(slice.length) *
             size_of(flat.kinds[static_cast<std::size_t>(slice.kind)].dtype);
    }
    return sum;
  }

  // Whether it can be written, with numbers as long as they get: known before the shards are.
  void check_manifest() const {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    Manifest whole = manifest_;
    whole.uuid = std::string(32, '0');
    for (int rank = 0; rank < control_.size(); ++rank) {
      whole.shards.push_back({.file = shard_name(rank, control_.size()),
                              .size = kMost,
                              .index = {.offset = kMost / 2, .length = kMost / 2},
                              .checksums = {.offset = kMost / 2, .length = kMost / 2}});
    }
    to_text(whole);
  }

  // All say what they have; rank 0 makes the folder, or says that there is one; all look for it.
  void begin() {
    Bytes mine;
    RecordWriter own(mine);
    own.put(request_.step);
    own.put(own_bytes());
    const Bytes all = agree(control_, "beginning of a save", std::nullopt, mine);
    RecordReader reader(all);
    std::int64_t step = 0;
    for (int rank = 0; rank < control_.size(); ++rank) {
      const auto theirs = reader.get<std::int64_t>();
      if (rank == 0) step = theirs;
      if (theirs != step) {
        throw InvalidArgument(fmt::format("rank {}: saves step {}, rank 0 step {}; save the same",
                                          rank, theirs, step));
      }
      total_bytes_ += reader.get<std::uint64_t>();
    }

    Bytes words;
    const auto failed = failure_of([&] {
      if (!leads()) return;
      if (!request_.already.empty() && std::filesystem::exists(request_.already)) {
        RecordWriter writer(words);
        writer.put_text(request_.already);
        writer.put_text("");
        return;
      }
      check_manifest();
      folder_.emplace(request_.root, request_.step, total_bytes_);
      RecordWriter writer(words);
      writer.put_text(folder_->path().string());
      writer.put_text(folder_->nonce());
    });
    const Bytes place = agree(control_, "temporary folder of a save", failed, words);
    RecordReader place_reader(place);
    temporary_ = place_reader.get_text();
    manifest_.uuid = place_reader.get_text();
  }

  void write() {
    std::optional<ShardWriter> writer;
    std::optional<Failure> failed = failure_of([&] {
      check_shared(temporary_, manifest_.uuid);
      writer.emplace(temporary_ / shard_name(control_.rank(), control_.size()), manifest_,
                     control_.rank(), control_.size(), slices_);
    });
    const Fill fill = [&](std::size_t slice, std::int64_t first, std::int64_t count,
                          std::byte* to) {
      const Share& share = shares_[slice];
      share.part->read(slices_[slice].flat - share.first_flat, slices_[slice].kind,
                       slices_[slice].start + first, count, to);
    };
    // A rank that is done waits for the others in the next round.
    bool mine_done = false;
    for (bool all_done = false; !all_done;) {
      if (!failed && !mine_done) {
        failed =
            failure_of([&] { mine_done = writer->advance(fill, Clock::now() + round_time()); });
      }
      const Bytes said = agree(control_, fmt::format("writing of step {}", request_.step), failed,
                               plain_record(std::uint8_t{mine_done}));
      all_done = std::all_of(said.begin(), said.end(),
                             [](std::byte done) { return done != std::byte{0}; });
    }
    entry_ = writer->entry();
  }

  // Once renamed, the step is committed whatever happens to those who are told.
  SaveReport commit() {
    Bytes mine;
    RecordWriter own(mine);
    for (const Extent& extent : {entry_.index, entry_.checksums}) own.put(extent);
    own.put(entry_.size);
    own.put(entry_.rest);
    const Bytes entries = agree(control_, "sizes of a save", std::nullopt, mine);
    Bytes words;
    const auto failed = failure_of([&] {
      if (!leads()) return;
      RecordReader reader(entries);
      for (int rank = 0; rank < control_.size(); ++rank) {
        ShardEntry& entry = manifest_.shards.emplace_back();
        entry.file = shard_name(rank, control_.size());
        entry.index = reader.get<Extent>();
        entry.checksums = reader.get<Extent>();
        entry.size = reader.get<std::uint64_t>();
        entry.rest = reader.get<std::uint64_t>();
        const std::uint64_t here = io::File(temporary_ / entry.file, io::Access::read).size();
        if (here != entry.size) {
          throw IoError(fmt::format("{}: rank {} wrote {} bytes, rank 0 sees {}",
                                    (temporary_ / entry.file).string(), rank, entry.size, here));
        }
      }
      const StepFolder committed = folder_->commit(to_text(manifest_));
      hint_latest(request_.root, committed);
      prune(request_.root, request_.keep, committed);
      RecordWriter(words).put_text(committed.path.string());
    });
    const Bytes place =
        agree(control_, fmt::format("commit of step {}", request_.step), failed, words);
    SaveReport report;
    report.step = request_.step;
    report.bytes = total_bytes_;
    report.folder = RecordReader(place).get_text();
    if (leads()) {
      log::info("step {} saved in {}: {} bytes of {} ranks", report.step, report.folder,
                report.bytes, control_.size());
    }
    return report;
  }

  Control& control_;
  const SaveRequest& request_;
  Manifest manifest_;
  std::vector<Slice> slices_;         ///< in the manifest's numbering
  std::vector<Share> shares_;         ///< of each
  std::optional<SaveFolder> folder_;  ///< rank 0's
  std::filesystem::path temporary_;
  std::uint64_t total_bytes_ = 0;
  ShardEntry entry_;
};

}  // namespace

SaveReport save(Control& control, const SaveRequest& request,
                std::span<const SavedPart* const> parts) {
  return Save(control, request, parts).run();
}

}  // namespace ration::checkpoint
