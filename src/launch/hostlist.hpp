#pragma once
// The notations in which Slurm says where the tasks of a step are.

#include <string>
#include <string_view>
#include <vector>

namespace ration {

/// `n[1-3,07],m05` -> n1 n2 n3 n07 m05; several brackets in a name (`r[1-2]n[01-02]`) are all their
/// combinations, the last one fastest. A range keeps the zeros its first number begins with.
/// Throws InvalidArgument that begins with `source` and says where the text goes wrong.
std::vector<std::string> expand_hostlist(std::string_view list, std::string_view source);

/// `4(x2),3` -> 4 4 3: how many tasks each node has. Throws as above.
std::vector<int> expand_tasks_per_node(std::string_view list, std::string_view source);

}  // namespace ration
