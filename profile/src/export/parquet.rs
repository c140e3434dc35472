//! Apache Parquet: one row per [`EdgeRow`], one column per field.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RecordWriter;

use super::edges::EdgeRow;

/// Rows per row group; one group is buffered in memory.
const GROUP: usize = 1 << 16;

/// A file under construction, in memory: compressed rows are small.
#[derive(Debug)]
pub struct Parquet {
    writer: SerializedFileWriter<Vec<u8>>,
    rows: Vec<EdgeRow>,
}

impl Parquet {
    /// Starts a file without rows.
    ///
    /// # Errors
    /// [`ParquetError`].
    pub fn new() -> Result<Parquet, ParquetError> {
        let schema = [EdgeRow::default()].as_slice().schema()?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
        Ok(Parquet { writer, rows: Vec::new() })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`ParquetError`].
    pub fn row(&mut self, row: EdgeRow) -> Result<(), ParquetError> {
        self.rows.push(row);
        if self.rows.len() >= GROUP { self.pack() } else { Ok(()) }
    }

    fn pack(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        self.rows.as_slice().write_to_row_group(&mut group)?;
        group.close()?;
        self.rows.clear();
        Ok(())
    }

    /// Returns the whole file.
    ///
    /// # Errors
    /// [`ParquetError`].
    pub fn finish(mut self) -> Result<Vec<u8>, ParquetError> {
        if !self.rows.is_empty() {
            self.pack()?;
        }
        self.writer.into_inner()
    }
}
