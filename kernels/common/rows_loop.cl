// Put before the row kernels that read a row in a loop (softmax.cl, norm.cl): how items lie over rows
// of any length. LX items share a row, LY rows a group; an item holds CHUNK vectors of V floats at a
// time, LX vectors apart so that neighbours read neighbouring memory. The elements after the row's
// last whole vector belong to its first item.
//   SINGLE=1: a row fits the items' registers: memory is read once.
//   SPLITS > 1: so many groups share a row, PHASE=1 and PHASE=2 follow each other.

// `action` for each whole vector of the chunk that starts at vector `first`, for part[j] at AT(j);
// `otherwise` for those that the row has not.
#define AT(j) ((first + (j)*LX + place) * V)
#define FOR_CHUNK(action, otherwise)                                \
  if (first + LX * CHUNK <= whole) {                                \
    _Pragma("unroll") for (int j = 0; j < CHUNK; ++j) { action; }   \
  } else {                                                          \
    _Pragma("unroll") for (int j = 0; j < CHUNK; ++j) {             \
      if (first + j * LX + place < whole) {                         \
        action;                                                     \
      } else {                                                      \
        otherwise;                                                  \
      }                                                             \
    }                                                               \
  }

// Items past the last row repeat it, because all must meet at the barriers; they store nothing. A
// group has the part [begin,end) of the row: whole vectors except for the last one.
#define BEGIN_ROW                                                                      \
  const int place = get_local_id(0) % LX;                                              \
  const long asked = (long)(get_group_id(0) / SPLITS) * LY + get_local_id(0) / LX;     \
  const long row = asked < rows ? asked : rows - 1;                                    \
  const int piece = get_group_id(0) % SPLITS;                                          \
  const long width = (cols / V + SPLITS) / SPLITS * V;                                 \
  const long begin = min(piece * width, cols);                                         \
  const long end = min(begin + width, cols);                                           \
  __global const element* row_x = x + row * cols + begin;                              \
  __global element* row_y = y + row * cols + begin;                                    \
  const long whole = (end - begin) / V;                                                \
  const int rest = place == 0 ? (int)((end - begin) % V) : 0;                          \
  floatv part[CHUNK];
