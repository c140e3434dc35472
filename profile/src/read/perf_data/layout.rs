//! Constants of the format.

/// Fields of a sample. `PERF_SAMPLE_*`.
pub mod sample_type {
    /// Instruction pointer.
    pub const IP: u64 = 1;
    /// Process and thread.
    pub const TID: u64 = 1 << 1;
    /// Time.
    pub const TIME: u64 = 1 << 2;
    /// Data address.
    pub const ADDR: u64 = 1 << 3;
    /// Counter values.
    pub const READ: u64 = 1 << 4;
    /// Call chain.
    pub const CALLCHAIN: u64 = 1 << 5;
    /// Id of the event.
    pub const ID: u64 = 1 << 6;
    /// CPU.
    pub const CPU: u64 = 1 << 7;
    /// Event count since the previous sample.
    pub const PERIOD: u64 = 1 << 8;
    /// Id of the counter.
    pub const STREAM_ID: u64 = 1 << 9;
    /// Raw data.
    pub const RAW: u64 = 1 << 10;
    /// Branch stack.
    pub const BRANCH_STACK: u64 = 1 << 11;
    /// Registers of user mode.
    pub const REGS_USER: u64 = 1 << 12;
    /// A part of the stack of user mode.
    pub const STACK_USER: u64 = 1 << 13;
    /// Cost of the event.
    pub const WEIGHT: u64 = 1 << 14;
    /// Where data came from.
    pub const DATA_SRC: u64 = 1 << 15;
    /// Id of the event, first in samples and last in everything else.
    pub const IDENTIFIER: u64 = 1 << 16;
    /// Why a transaction was aborted.
    pub const TRANSACTION: u64 = 1 << 17;
    /// Registers where the sample was taken.
    pub const REGS_INTR: u64 = 1 << 18;
    /// Cost of the event, in parts: replaces `WEIGHT`.
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
}

/// Branch types and fields to record. `PERF_SAMPLE_BRANCH_*`.
pub mod branch {
    /// Ending in user mode.
    pub const USER: u64 = 1;
    /// Ending in the kernel.
    pub const KERNEL: u64 = 1 << 1;
    /// Every type.
    pub const ANY: u64 = 1 << 3;
    /// Calls.
    pub const ANY_CALL: u64 = 1 << 4;
    /// Returns.
    pub const ANY_RETURN: u64 = 1 << 5;
    /// Indirect calls.
    pub const IND_CALL: u64 = 1 << 6;
    /// Conditional branches.
    pub const COND: u64 = 1 << 10;
    /// Call-stack mode.
    pub const CALL_STACK: u64 = 1 << 11;
    /// Indirect jumps.
    pub const IND_JUMP: u64 = 1 << 12;
    /// Direct calls.
    pub const CALL: u64 = 1 << 13;
    /// Predictions are not recorded.
    pub const NO_FLAGS: u64 = 1 << 14;
    /// Cycles are not recorded.
    pub const NO_CYCLES: u64 = 1 << 15;
    /// The type field is filled.
    pub const TYPE_SAVE: u64 = 1 << 16;
    /// A stack starts with the index of its newest entry.
    pub const HW_INDEX: u64 = 1 << 17;
    /// Event counts follow the entries (Linux 6.8).
    pub const COUNTERS: u64 = 1 << 19;
}

/// Fields of a sample's counter values. `PERF_FORMAT_*`.
pub mod read_format {
    /// Time enabled.
    pub const TOTAL_TIME_ENABLED: u64 = 1;
    /// Time running.
    pub const TOTAL_TIME_RUNNING: u64 = 1 << 1;
    /// Ids.
    pub const ID: u64 = 1 << 2;
    /// All counters of a group.
    pub const GROUP: u64 = 1 << 3;
    /// Lost samples.
    pub const LOST: u64 = 1 << 4;
}

/// Bits of the attribute's flags word, counted from the bottom.
pub mod attr_flags {
    /// Inherited by children.
    pub const INHERIT: u64 = 1 << 1;
    /// The kernel is excluded.
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    /// The hypervisor is excluded.
    pub const EXCLUDE_HV: u64 = 1 << 6;
    /// Mappings are recorded.
    pub const MMAP: u64 = 1 << 8;
    /// Names are recorded.
    pub const COMM: u64 = 1 << 9;
    /// `sample_period` is a frequency.
    pub const FREQ: u64 = 1 << 10;
    /// Starts and ends of tasks are recorded.
    pub const TASK: u64 = 1 << 13;
    /// Every record ends with time, CPU etc.
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    /// Mappings carry inode or build id.
    pub const MMAP2: u64 = 1 << 23;
    /// Names record whether exec set them.
    pub const COMM_EXEC: u64 = 1 << 24;
}

/// Record types. `PERF_RECORD_*`.
pub mod record {
    /// A mapping, old form.
    pub const MMAP: u32 = 1;
    /// Dropped records.
    pub const LOST: u32 = 2;
    /// A name.
    pub const COMM: u32 = 3;
    /// A task ends.
    pub const EXIT: u32 = 4;
    /// A task starts.
    pub const FORK: u32 = 7;
    /// A sample.
    pub const SAMPLE: u32 = 9;
    /// A mapping.
    pub const MMAP2: u32 = 10;
    /// Samples that the kernel dropped.
    pub const LOST_SAMPLES: u32 = 13;
    /// An attribute, in pipe mode.
    pub const HEADER_ATTR: u32 = 64;
    /// Trace data follow the record.
    pub const TRACING_DATA: u32 = 66;
    /// A file's build id.
    pub const BUILD_ID: u32 = 67;
    /// Everything before this is older than everything after the next one.
    pub const FINISHED_ROUND: u32 = 68;
    /// Trace data of a CPU follow the record.
    pub const AUXTRACE: u32 = 71;
    /// A feature, in pipe mode.
    pub const HEADER_FEATURE: u32 = 80;
    /// Compressed records.
    pub const COMPRESSED: u32 = 81;
    /// Compressed records, padded (Linux 6.16).
    pub const COMPRESSED2: u32 = 83;
}

/// Bits of a record's `misc`.
pub mod misc {
    /// In user mode. Without it perf finds no symbols.
    pub const USER: u16 = 2;
    /// In the kernel.
    pub const KERNEL: u16 = 1;
    /// A mapping carries a build id instead of device and inode.
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    /// A build ID record contains its size.
    pub const BUILD_ID_SIZE: u16 = 1 << 15;
    /// Exec set the name.
    pub const COMM_EXEC: u16 = 1 << 13;
}

/// Header features, by bit.
pub mod feature {
    /// Build ids of mapped files.
    pub const BUILD_ID: u8 = 2;
    /// Host name.
    pub const HOSTNAME: u8 = 3;
    /// Kernel release.
    pub const OSRELEASE: u8 = 4;
    /// Version of the recorder.
    pub const VERSION: u8 = 5;
    /// Architecture.
    pub const ARCH: u8 = 6;
    /// CPUs available and online.
    pub const NRCPUS: u8 = 7;
    /// CPU description.
    pub const CPUDESC: u8 = 8;
    /// CPU, `vendor,family,model,stepping`.
    pub const CPUID: u8 = 9;
    /// Command line of the recorder.
    pub const CMDLINE: u8 = 11;
    /// Events with their names.
    pub const EVENT_DESC: u8 = 12;
    /// The recording has branch stacks: perf report's branch mode.
    pub const BRANCH_STACK: u8 = 15;
    /// Times of first and last sample.
    pub const SAMPLE_TIME: u8 = 21;
    /// The compression of its compressed records.
    pub const COMPRESSED: u8 = 27;
}

/// Magic of a little-endian file; reversed in a big-endian one.
pub const MAGIC: [u8; 8] = *b"PERFILE2";
/// Magic of a big-endian file.
pub const MAGIC_BIG: [u8; 8] = *b"2ELIFREP";
/// Magic before Linux 3.4, in either byte order: the header size tells which.
pub const MAGIC_OLD: [u8; 8] = *b"PERFFILE";
/// Size of a seekable file's header.
pub const HEADER_SIZE: u64 = 104;
/// Size of a pipe stream's header.
pub const PIPE_HEADER_SIZE: u64 = 16;
/// Size of one record of a branch stack.
pub const ENTRY_SIZE: usize = 24;
