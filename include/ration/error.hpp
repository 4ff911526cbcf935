#pragma once
// Error types, by what the caller can do about them. The text of each names rank, parameter or
// unit, both values, and what to do.

#include <stdexcept>
#include <string>

namespace ration {

/// Base of everything the library throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A wrong argument or call: fix the caller. Where the mistake concerns all ranks, all ranks throw
/// it.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// Memory could not be had; the text says how much, and of which kind.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A file or folder could not be read or written; the text names it and the operating system's
/// reason.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A checkpoint is not what was saved, or not one of ours; the text names the file and what is
/// wrong with it.
class CorruptCheckpoint : public Error {
 public:
  using Error::Error;
};

/// Ranks no longer agree on what to do next, or a peer was lost.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

/// A wait passed its deadline (RATION_TIMEOUT seconds); the text says who is missing, in which
/// operation.
class Timeout : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Another rank failed; the text is that rank's own.
class RemoteError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

}  // namespace ration
