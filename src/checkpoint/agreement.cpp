#include "checkpoint/agreement.hpp"

#include <fmt/format.h>

#include "core/record.hpp"

namespace ration::checkpoint {
namespace {

// A record is a status, then a failure's kind and text or the rank's own words; so is the result.
enum class Status : std::uint8_t { fine, failed };

void combine(std::span<const Bytes> records, Bytes& result) {
  Bytes all;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    RecordReader reader(records[rank]);
    if (reader.get<Status>() == Status::failed) {
      const auto kind = reader.get<Failure::Kind>();
      RecordWriter writer(result);
      writer.put(Status::failed);
      writer.put(kind);
      writer.put_text(fmt::format("rank {}: {}", rank, reader.get_text()));
      return;
    }
    Bytes words;
    reader.get_list(words);
    all.insert(all.end(), words.begin(), words.end());
  }
  RecordWriter writer(result);
  writer.put(Status::fine);
  writer.put_list(all);
}

}  // namespace

Bytes agree(Control& control, std::string_view what, const std::optional<Failure>& failure,
            const Bytes& record) {
  Bytes mine;
  RecordWriter writer(mine);
  if (failure) {
    writer.put(Status::failed);
    writer.put(failure->kind);
    writer.put_text(failure->text);
  } else {
    writer.put(Status::fine);
    writer.put_list(record);
  }
  Bytes result;
  control.fold("checkpoint", mine, combine, result, what);
  RecordReader reader(result);
  if (reader.get<Status>() == Status::failed) {
    Failure agreed{reader.get<Failure::Kind>(), {}};
    agreed.text = reader.get_text();
    agreed.raise();
  }
  Bytes all;
  reader.get_list(all);
  return all;
}

}  // namespace ration::checkpoint
