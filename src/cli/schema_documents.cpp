// JSON Schemas of the --json documents of list, doctor, ceilings, calibrate, compare, roofline and
// generate.
#include "cli/schema.hpp"

namespace rooflane::schema {
namespace {

const ordered_json text = {{"type", "string"}};
const ordered_json integer = {{"type", "integer"}};

ordered_json number_or_word(const char* description) {
  return {{"description", description}, {"type", {"number", "string"}}};
}

ordered_json parameter_schema() {
  ordered_json kind = value("string", "size and flag are whole numbers");
  kind["enum"] = {"size", "flag", "real", "choice", "chain"};
  return object(
      "A parameter of a kernel, in the order of the shape.",
      {{"name", value("string", "its key in a shape")},
       {"kind", kind},
       {"required", value("boolean", "whether a shape must name it")}},
      {{"default", number_or_word("where it is constant")},
       {"choices", list_of(text, "the words allowed; of a choice the first is the default")},
       {"least", value("integer", "the smallest size allowed")}});
}

ordered_json variant_schema() {
  ordered_json threads = value("string", "what it does with threads");
  threads["enum"] = {"one", "many", "device"};
  const ordered_json tunable = object("A tunable.", {{"name", value("string", "its key")},
                                                     {"meaning", value("string", "what it sets")},
                                                     {"least", value("integer", "smallest value")},
                                                     {"most", value("integer", "largest value")}});
  const ordered_json rung =
      object("A rung of its ladder.", {{"name", value("string", "in a word")},
                                       {"idea", value("string", "what it adds to the one before")},
                                       {"threads", threads}});
  return object("One implementation of the kernel.",
                {{"name", value("string", "as -v names it")},
                 {"available", value("boolean", "whether this build and machine can run it")}},
                {{"reason", value("string", "why it is absent")},
                 {"backend", value("string", "scalar, cblas, highway, opencl, ...")},
                 {"threads", threads},
                 {"library", value("string", "path of its CBLAS library, where one was named")},
                 {"tunables", list_of(tunable, "what --tuning takes")},
                 {"ladder", list_of(rung, "from the plainest on")}});
}

ordered_json problem_schema() {
  ordered_json role =
      value("string", "constant: a plan may keep it packed; updated: read and written");
  role["enum"] = {"input", "constant", "output", "updated"};
  const ordered_json tensor =
      object("A tensor of the problem.",
             {{"name", value("string", "its name")},
              {"role", role},
              {"dtype", value("string", "element type")},
              {"shape", list_of(integer, "sizes of its axes")},
              {"seed_scale", value("number", "what inputs from a seed are multiplied by")}},
             {{"ids_below", value("string", "int32: values are 0 to this parameter's less one")},
              {"counts_to", value("string", "int32: values are 0 to this parameter's")},
              {"ascending", value("boolean", "int32: each value is at least the one before")}});
  const ordered_json cost =
      object("Counts of one run.", {{"flops", value("number", "floating-point operations")},
                                    {"exps", value("number", "exponentials")},
                                    {"bytes", value("number", "compulsory: each operand once")}});
  return object("A problem with everything that follows from its shape.",
                {{"kernel", value("string", "the operation")},
                 {"text", value("string", "as rows print it, KERNEL:key=value,...")},
                 {"parameters", map_of(number_or_word("as in a shape"), "every parameter's value")},
                 {"tensors", list_of(tensor, "inputs first, then the output")},
                 {"cost", cost}});
}

// A ratio of times, or another figure, with its 95 % interval.
ordered_json figure_schema() {
  ordered_json figure = object("A figure with its 95 % interval.",
                               {{"value", value("number", "the estimate")},
                                {"low", nullable("number", "null: the interval is not known")},
                                {"high", nullable("number", "null: the interval is not known")}});
  figure["type"] = {"object", "null"};
  return figure;
}

ordered_json setting_fields() {
  return {{"kernel", value("string", "the operation")},
          {"dtype", value("string", "element type")},
          {"math", value("string", "arithmetic used")},
          {"cache", value("string", "warm or cold")},
          {"cpu", value("string", "model name of the CPU")}};
}

ordered_json with(ordered_json fields, const ordered_json& more) {
  fields.update(more);
  return fields;
}

ordered_json line_schema() {
  ordered_json verdict = value("string", "of the group");
  verdict["enum"] = {"winner", "tie", "undecided", "none"};
  return object(
      "A variant in a group.",
      {{"row", value("integer", "its position in rows")},
       {"variant", value("string", "the implementation")},
       {"verdict", verdict},
       {"cliff", value("boolean", "below a tenth of its roof, or slower than float32")},
       {"over_scalar", definition("figure")},
       {"over_best_peer", definition("figure")},
       {"over_model", definition("figure")},
       {"over", map_of(definition("figure"),
                       "peer -> times as fast as it; for variants that are not a library")},
       {"roof_pct", definition("figure")}});
}

ordered_json group_schema() {
  return object(
      "One problem at one number of threads, math and cache mode.",
      with(setting_fields(),
           {{"problem", value("string", "KERNEL:shape")},
            {"shape", value("string", "sizes and flags")},
            {"distribution", value("string", "of the inputs; empty: uniform")},
            {"threads", nullable("integer", "null: devices without threads only")},
            {"size", value("string", "the plateau that the operands fit in; empty: not known")},
            {"fastest",
             nullable("integer", "position of the leader: a PASSED row that no other beats")},
            {"tie", value("boolean", "whether the leader and another are shown to be equal")},
            {"undecided",
             value("boolean", "whether the leader cannot be distinguished from another")},
            {"longer",
             nullable("number", "of an undecided group: the --max-time in s that decides it")},
            {"next", nullable("integer", "position of the fastest of the others")},
            {"over_next", definition("figure")},
            {"peers", list_of(integer,
                              "positions of third-party libraries, fastest first; in another math "
                              "without peers, strict float32 ones")},
            {"lines", list_of(definition("line"), "fastest first, then those without a time")}}));
}

ordered_json class_schema() {
  const ordered_json instead = object("A problem that another variant wins.",
                                      {{"shape", value("string", "sizes and flags")},
                                       {"variant", value("string", "the winner")},
                                       {"row", value("integer", "position of its row")},
                                       {"faster", definition("figure")}});
  return object(
      "The problems of one kernel and size at one place.",
      with(setting_fields(),
           {{"threads", nullable("integer", "null: devices without threads only")},
            {"size", value("string", "plateau; empty: all sizes, or not known")},
            {"problems", value("integer", "how many")},
            {"use", value("string", "the variant that is fastest or ties in most; empty: none")},
            {"wins", value("integer", "problems that it wins")},
            {"ties", value("integer", "problems in which it ties")},
            {"undecided", value("integer", "problems without a verdict, or without a PASSED row")},
            {"over_next", definition("figure")},
            {"over_best_peer", definition("figure")},
            {"roof_pct", definition("figure")},
            {"least_roof_pct", nullable("number", "of its problems, per cent")},
            {"instead", list_of(instead, "where to use another variant")},
            {"text", value("string", "all this as a sentence")}}));
}

ordered_json preset_schema() {
  return object("A variant over the problems of a preset; geometric means.",
                with(setting_fields(),
                     {{"threads", nullable("integer", "null: devices without threads only")},
                      {"preset", value("string", "the preset of its rows")},
                      {"variant", value("string", "nobody's library")},
                      {"problems", value("integer", "how many")},
                      {"over_best_peer", definition("figure")},
                      {"over", map_of(definition("figure"), "peer -> times as fast as it")},
                      {"roof_pct", definition("figure")}}));
}

ordered_json device_schema() {
  const ordered_json point =
      object("A problem measured on both.",
             {{"shape", value("string", "sizes and flags")},
              {"flops", value("number", "floating-point operations")},
              {"cpu_row", value("integer", "position of the fastest row of the CPU")},
              {"kernel_ns", nullable("number", "least time of the device's kernel")},
              {"end_to_end_ns", nullable("number", "least time with transfers")}});
  const ordered_json family =
      object("Shapes with sizes that grow by one factor.",
             {{"family", value("string", "with * for the sizes that grow")},
              {"shapes", list_of(text, "by growing size")},
              {"text", value("string", "from which size on the device is faster")}});
  return object("A device compared with the CPU.",
                with(setting_fields(), {{"device", value("string", "its name")},
                                        {"points", list_of(point, "by growing size")},
                                        {"families", list_of(family, "where sizes grow")}}));
}

ordered_json traits_schema() {
  const ordered_json rate = value("number", "bytes per second");
  const ordered_json by_level =
      object("Rates by level.", {{"L1", rate}, {"L2", rate}, {"L3", rate}, {"memory", rate}});
  const ordered_json rates =
      object("Rates of one thread.",
             {{"fma_flops_s", value("number", "float32 operations per second of multiply-adds")},
              {"read_bytes_s", by_level},
              {"write_bytes_s", by_level},
              {"stream_bytes_s", value("number", "non-temporal stores, bytes per second")},
              {"copy_bytes_s",
               object("Read and stored, together; 0: not measured. From memory past the caches in "
                      "order, in four places at once, and by plain stores within L3.",
                      {{"in_order", rate}, {"in_four", rate}, {"within_l3", rate}})}});
  const ordered_json unit =
      object("A unit for short operands, in registers.",
             {{"instruction", value("string", "what multiplies")},
              {"one_ops_s", value("number", "operations per second of one thread alone")},
              {"many_ops_s", value("number", "of each of `threads`")}});
  const ordered_json constant = object(
      "A constant of a cost model.",
      {{"name", value("string", "MODEL.NAME")}, {"value", value("number", "in its own unit")}});
  ordered_json origin = value("string", "whether a calibration was read");
  origin["enum"] = {"measured", "derived"};
  return object(
      "The machine traits that the cost model uses.",
      {{"origin", origin},
       {"date", nullable("string", "of the calibration")},
       {"file", nullable("string", "where they are stored; null: nowhere")},
       {"problem", nullable("string", "why the file is not used")},
       {"isa", value("string", "Highway target they hold for")},
       {"threads", value("integer", "threads of `many`")},
       {"l1_bytes", value("integer", "L1 data cache of a core")},
       {"l2_bytes", value("integer", "L2 cache of a core")},
       {"l3_bytes", value("integer", "last cache, up to the size where it is fast")},
       {"one", rates},
       {"many", rates},
       {"units", list_of(unit, "that were calibrated")},
       {"transpose_bytes_s", value("number", "read by a transposed copy in L2")},
       {"region_s", value("number", "seconds that a parallel region takes")},
       {"task_s", value("number", "seconds to assign a task")},
       {"jitter",
        value("number", "delay of the last thread after the mean, as a fraction of equal work")},
       {"pages", value("number", "pages of 4 KiB that the TLB can hold")},
       {"page_walk_s", value("number", "seconds for a further page")},
       {"constants", list_of(constant, "of the cost models, shipped or learned")}});
}

ordered_json tuned_machine_schema() {
  return object("The machine that schedules are tuned for.",
                {{"key", value("string", "CPU, caches and logical CPUs in a line")},
                 {"cpu", value("string", "model name of the CPU")},
                 {"cores", value("integer", "physical cores")}});
}

ordered_json tuned_source_schema() {
  ordered_json origin = value("string", "which file: that of $ROOFLANE_TUNED, or this machine's");
  origin["enum"] = {"ROOFLANE_TUNED", "store", "none"};
  return object(
      "Tuned schedules in use.",
      {{"origin", origin},
       {"file", nullable("string", "the file; null: none is used")},
       {"problem", nullable("string", "why the file is not used")},
       {"entries", value("integer", "number of its entries")},
       {"unused",
        list_of(value("string", "problem, variant, tuning, and why"),
                "entries that serve nothing: their variant has no such tunable or value")},
       {"newest", nullable("string", "when the last entry was timed, ISO 8601, UTC")},
       {"store", nullable("string", "this machine's own file, even if it does not exist")},
       {"machine", tuned_machine_schema()}});
}

}  // namespace

ordered_json list_document() {
  const ordered_json kernel =
      object("A kernel.", {{"name", value("string", "its name")},
                           {"summary", value("string", "the maths in a line")},
                           {"parameters", list_of(definition("parameter"), "of its shapes")},
                           {"variants", list_of(definition("variant"), "its implementations")}});
  return document("list",
                  {{"kernels", list_of(definition("kernel"), "all of this build")},
                   {"problems", list_of(definition("problem"), "those of --shape")}},
                  {{"kernel", kernel},
                   {"parameter", parameter_schema()},
                   {"variant", variant_schema()},
                   {"problem", problem_schema()}});
}

ordered_json doctor_document() {
  const ordered_json target = object("A Highway target of this build.",
                                     {{"name", value("string", "its name")},
                                      {"here", value("boolean", "whether this CPU has it")}});
  const ordered_json library =
      object("A CBLAS library.",
             {{"variant", value("string", "the variant that uses it")},
              {"absent", nullable("string", "why it is absent; null: it is available")},
              {"description", value("string", "name, version, core type")},
              {"path", value("string", "its file")},
              {"environment", map_of(text, "variables that workers set for it")}});
  const ordered_json device = object(
      "A device.", {{"index", value("integer", "what --cl-device takes")},
                    {"kind", value("string", "CPU, GPU or accelerator")},
                    {"name", value("string", "as in rows")},
                    {"platform", value("string", "its platform")},
                    {"driver", value("string", "version of the driver")},
                    {"compute_units", value("integer", "compute units")},
                    {"global_bytes", value("integer", "memory")},
                    {"local_bytes", value("integer", "local memory of a work-group")},
                    {"unusable", nullable("string", "why a simple kernel fails; null: it works")},
                    {"features", value("string", "what its kernels may use, in words")}});
  const ordered_json broken =
      object("A driver that is not used.",
             {{"file", value("string", "its file, or its platform")},
              {"fault", value("string", "what it did, in words: crashed at start")},
              {"reason", value("string", "how it crashed, or what it computes incorrectly")}});
  const ordered_json backend =
      object("A backend of this build that runs on devices.",
             {{"backend", value("string", "its name")},
              {"devices", list_of(device, "by index")},
              {"broken_drivers", list_of(broken, "that crashed at their start or compile wrongly")},
              {"programs", value("string", "the cache of programs on disk")}});
  const ordered_json absent = object("What this build lacks, each reason once.",
                                     {{"variant", value("string", "the first that lacks it")},
                                      {"reason", value("string", "why")}});
  return document("doctor",
                  {{"version", value("string", "version of rooflane")},
                   {"build_commit", value("string", "git commit of the build")},
                   {"compiler", value("string", "compiler and version")},
                   {"slug", value("string", "this machine's name in results/")},
                   {"machine", definition("machine")},
                   {"isa_targets", list_of(target, "best first")},
                   {"traits", traits_schema()},
                   {"tuned", tuned_source_schema()},
                   {"libraries", list_of(library, "one per variant")},
                   {"device_backends", list_of(backend, "with what they find")},
                   {"absent", list_of(absent, "not built")},
                   {"slowdowns", list_of(definition("slowdown"), "what slows this machine down")},
                   {"counters", list_of(text, "hardware counters that profiles may use")},
                   {"counters_absent", nullable("string", "why there are none")}},
                  machine_definitions());
}

ordered_json ceilings_document() {
  return document("ceilings",
                  {{"machine", definition("machine")}, {"ceilings", definition("ceilings")}},
                  machine_definitions());
}

ordered_json calibrate_document() {
  return document("calibrate", {{"machine", definition("machine")}, {"traits", traits_schema()}},
                  {{"machine", machine_definitions()["machine"]}});
}

ordered_json compare_document() {
  ordered_json verdict = value("string", "what became of it");
  verdict["enum"] = {"FAILING", "SLOWER", "FASTER", "UNSURE", "only OLD", "only NEW", "SAME"};
  const ordered_json row = object(
      "A row of both sides.", {{"verdict", verdict},
                               {"kernel", value("string", "the operation")},
                               {"shape", value("string", "sizes and flags")},
                               {"dtype", value("string", "element type")},
                               {"math", value("string", "arithmetic used")},
                               {"variant", value("string", "the implementation")},
                               {"tuning_source", nullable("string", "of NEW, as in its row")},
                               {"isa", nullable("string", "Highway target")},
                               {"threads", nullable("integer", "null on a GPU")},
                               {"cache", value("string", "warm or cold")},
                               {"device", nullable("string", "OpenCL device")},
                               {"distribution", nullable("string", "of the inputs; null: uniform")},
                               {"old_ns", nullable("number", "median of OLD, ns")},
                               {"new_ns", nullable("number", "median of NEW, ns")},
                               {"ratio", definition("figure")},
                               {"reason", nullable("string", "why it is UNSURE or FAILING")}});
  return document("compare",
                  {{"old", value("string", "the file or build")},
                   {"new", value("string", "the file or build")},
                   {"regressed", value("boolean", "whether a row is SLOWER or FAILING")},
                   {"counts", map_of(integer, "verdict -> rows")},
                   {"rows", list_of(definition("row"), "sorted by verdict; ratio: new / old")}},
                  {{"row", row}, {"figure", figure_schema()}});
}

ordered_json tuned_document() {
  ordered_json threads = value("integer", "threads; 0: a whole device");
  threads["minimum"] = 0;
  ordered_json version = value("integer", "version of this format");
  version["const"] = 1;
  const ordered_json ratio = object("Time over that of the default, timed in the same rounds.",
                                    {{"value", value("number", "the estimate")},
                                     {"low", value("number", "of its 95 % interval")},
                                     {"high", value("number", "of its 95 % interval")}});
  const ordered_json entry = object(
      "A tuned schedule.",
      {{"kernel", value("string", "the operation")},
       {"variant", value("string", "the implementation")},
       {"shape", value("string", "the problem, KERNEL:key=value,...")},
       {"math", value("string", "arithmetic used")},
       {"threads", threads},
       {"isa", value("string", "Highway target of hwy, baseline for scalar, else empty")},
       {"device", value("string", "its name; empty on the CPU")},
       {"tuning", value("string", "what --tuning takes, key=value,...")}},
      {{"default", value("string", "the tuning that it was compared with")},
       {"ratio", ratio},
       {"cache", value("string", "warm or cold: how the operands were found; default: as usual")},
       {"exact", value("boolean", "applies only to its own shape; default: false")},
       {"build", value("string", "git commit of the build that timed it")},
       {"time", value("string", "when it was timed, ISO 8601, UTC")}});
  ordered_json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                         {"$id", "urn:rooflane:tuned:1"},
                         {"title", "Tuned schedules, as --tuned and ROOFLANE_TUNED read them"}};
  schema.update(object("The file.", {{"rooflane_tuned", version},
                                     {"machine", tuned_machine_schema()},
                                     {"entries", list_of(entry, "of equal distance the first")}}));
  return schema;
}

ordered_json roofline_document() {
  const ordered_json file = object(
      "A file that was read.",
      {{"path", value("string", "as given")}, {"rows", value("integer", "number of its rows")}});
  const ordered_json family = object("Shapes of a kernel with sizes that grow by one factor.",
                                     {{"kernel", value("string", "the operation")},
                                      {"family", value("string", "with * for the sizes that grow")},
                                      {"shapes", list_of(text, "its shapes")}});
  return document(
      "roofline",
      {{"files", list_of(file, "in order")},
       {"principle", value("string", "what sizes are, in a line")},
       {"classes", list_of(definition("class"), "which variant to use, by kernel and size")},
       {"kernels", list_of(definition("class"), "the same over all sizes")},
       {"presets", list_of(definition("preset"), "variants over presets")},
       {"groups", list_of(definition("group"), "problem by problem")},
       {"families", list_of(family, "of timed shapes")},
       {"devices", list_of(definition("device"), "devices compared with the CPU")},
       {"rungs", list_of(integer, "positions of rows of ladders, which take no part")},
       {"rows", list_of(definition("row"), "of all files, in order")}},
      {{"figure", figure_schema()},
       {"line", line_schema()},
       {"group", group_schema()},
       {"class", class_schema()},
       {"preset", preset_schema()},
       {"device", device_schema()},
       {"row", versioned_row()}});
}

ordered_json generate_document() {
  const ordered_json token_rate =
      object("How fast the tokens of the prompt, or of the text, were computed.",
             {{"tokens", value("integer", "how many")},
              {"seconds", value("number", "that they took")},
              {"tokens_s", value("number", "tokens per second")},
              {"gb_s", value("number", "1e9 bytes per second that had to be read")},
              {"read_pct", value("number", "per cent of read_gb_s")},
              {"gops", value("number", "1e9 operations per second")},
              {"peak_pct", value("number", "per cent of the instruction's peak in registers")},
              {"instruction", value("string", "what multiplies in the largest products")},
              {"bound", value("string", "memory, the instruction, or neither")}});
  const ordered_json drafts = object(
      "Tokens that were guessed.",
      {{"drafted", value("integer", "how many")},
       {"accepted", value("integer", "of those that were right")},
       {"same_bits", value("boolean", "whether verified logits were those of single ones")}});
  const auto or_null = [](ordered_json schema) {
    schema["type"] = {"object", "null"};
    return schema;
  };
  return document("generate",
                  {{"threads", value("integer", "of the run")},
                   {"prompt", token_rate},
                   {"text", or_null(token_rate)},
                   {"read_gb_s", value("number", "1e9 bytes per second of a plain read")},
                   {"memory_bytes", value("integer", "the process's peak of resident memory")},
                   {"passes", value("integer", "of the model over the text behind the prompt")},
                   {"drafts", or_null(drafts)}},
                  ordered_json::object());
}

}  // namespace rooflane::schema
