//! Rows as a Parquet file: one row group, text as UTF-8, whole numbers as INT64, others as DOUBLE.
//!
//! Cells are taken from a row's JSON form by the name of the column, so that CSV, JSON and Parquet cannot differ
//! in anything but their format.

use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use haloscope::io::write_atomically;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::record::Field;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;

use crate::columns::{COLUMNS, Column, Kind};
use crate::error::{Error, Result};
use crate::row::Row;

/// Writes rows to a file, which is there whole or not at all.
pub fn write_parquet(path: &Path, rows: &[Row]) -> Result<()> {
    let cells = rows.iter().map(serde_json::to_value).collect::<serde_json::Result<Vec<Value>>>();
    let cells = cells.map_err(|error| Error::file(path, error))?;
    let bytes = encode(&cells).map_err(|error| Error::file(path, error))?;
    Ok(write_atomically(path, |file| file.write_all(&bytes))?)
}

/// Reads what [`write_parquet`] wrote.
pub fn read_parquet(path: &Path) -> Result<Vec<Row>> {
    let file = File::open(path).map_err(|error| Error::file(path, error))?;
    let reader = SerializedFileReader::new(file).map_err(|error| Error::file(path, error))?;
    let records = reader.get_row_iter(None).map_err(|error| Error::file(path, error))?;
    let mut rows = Vec::new();
    for record in records {
        let record = record.map_err(|error| Error::file(path, error))?;
        let cells = record.get_column_iter().map(|(name, field)| (name.clone(), cell(field)));
        let row: serde_json::Result<Row> = serde_json::from_value(Value::Object(cells.collect()));
        rows.push(row.map_err(|error| Error::file(path, error))?.completed());
    }
    Ok(rows)
}

fn encode(rows: &[Value]) -> std::result::Result<Vec<u8>, ParquetError> {
    let mut schema = String::from("message rows {\n");
    for Column { name, kind, .. } in COLUMNS {
        let kind = match kind {
            Kind::Text | Kind::Word(_) => format!("BYTE_ARRAY {name} (STRING)"),
            Kind::Flag => format!("BOOLEAN {name}"),
            Kind::Count => format!("INT64 {name}"),
            Kind::Amount | Kind::Number => format!("DOUBLE {name}"),
        };
        let _ = writeln!(schema, "  OPTIONAL {kind};");
    }
    schema.push('}');
    let mut bytes = Vec::new();
    let schema = Arc::new(parse_message_type(&schema)?);
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties)?;
    let mut group = writer.next_row_group()?;
    let mut columns = COLUMNS.iter();
    while let (Some(mut column), Some(known)) = (group.next_column()?, columns.next()) {
        write_column(&mut column, known, rows)?;
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

fn write_column(
    column: &mut SerializedColumnWriter<'_>,
    known: &Column,
    rows: &[Value],
) -> std::result::Result<(), ParquetError> {
    let cells: Vec<&Value> = rows.iter().map(|row| &row[known.name]).collect();
    // 1 where there is a value, 0 where the field is empty.
    let there: Vec<i16> = cells.iter().map(|cell| i16::from(!cell.is_null())).collect();
    match known.kind {
        Kind::Text | Kind::Word(_) => {
            let values: Vec<ByteArray> =
                cells.iter().filter_map(|cell| cell.as_str()).map(ByteArray::from).collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&there), None)?;
        }
        Kind::Flag => {
            let values: Vec<bool> = cells.iter().filter_map(|cell| cell.as_bool()).collect();
            column.typed::<BoolType>().write_batch(&values, Some(&there), None)?;
        }
        Kind::Count => {
            let values: Vec<i64> = cells.iter().filter_map(|cell| cell.as_i64()).collect();
            column.typed::<Int64Type>().write_batch(&values, Some(&there), None)?;
        }
        Kind::Amount | Kind::Number => {
            let values: Vec<f64> = cells.iter().filter_map(|cell| cell.as_f64()).collect();
            column.typed::<DoubleType>().write_batch(&values, Some(&there), None)?;
        }
    }
    Ok(())
}

fn cell(field: &Field) -> Value {
    match field {
        Field::Bool(flag) => (*flag).into(),
        Field::Long(count) => (*count).into(),
        Field::Double(number) => (*number).into(),
        Field::Str(text) => text.as_str().into(),
        _ => Value::Null,
    }
}
