#include "core/failure.hpp"

#include <new>

#include <ration/error.hpp>

namespace ration {

void Failure::raise() const {
  switch (kind) {
    case Kind::error:
      break;
    case Kind::invalid_argument:
      throw InvalidArgument(text);
    case Kind::out_of_memory:
      throw OutOfMemory(text);
    case Kind::io_error:
      throw IoError(text);
    case Kind::corrupt_checkpoint:
      throw CorruptCheckpoint(text);
    case Kind::communication_error:
      throw CommunicationError(text);
    case Kind::timeout:
      throw Timeout(text);
    case Kind::remote_error:
      throw RemoteError(text);
  }
  throw Error(text);
}

Failure Failure::current() {
  try {
    throw;
  } catch (const InvalidArgument& e) {
    return {Kind::invalid_argument, e.what()};
  } catch (const OutOfMemory& e) {
    return {Kind::out_of_memory, e.what()};
  } catch (const std::bad_alloc& e) {
    return {Kind::out_of_memory, e.what()};
  } catch (const IoError& e) {
    return {Kind::io_error, e.what()};
  } catch (const CorruptCheckpoint& e) {
    return {Kind::corrupt_checkpoint, e.what()};
  } catch (const Timeout& e) {
    return {Kind::timeout, e.what()};
  } catch (const RemoteError& e) {
    return {Kind::remote_error, e.what()};
  } catch (const CommunicationError& e) {
    return {Kind::communication_error, e.what()};
  } catch (const std::exception& e) {
    return {Kind::error, e.what()};
  } catch (...) {
    return {Kind::error, "an exception that is no std::exception"};
  }
}

}  // namespace ration
