//! Reading protocol buffers: the fields of a message, one after the other, with every length checked.

/// The fields of a message that is not trusted.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

/// The value of a field, as far as files have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A number of 4 or 8 bytes, which nobody asks for.
    Other,
}

impl<'a> Fields<'a> {
    /// The fields of a message.
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The numbers of a packed list.
    pub(crate) fn packed(list: &[u8]) -> Result<Vec<u64>, String> {
        let mut rest = Fields(list);
        let mut numbers = Vec::new();
        while !rest.0.is_empty() {
            numbers.push(rest.number()?);
        }
        Ok(numbers)
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), String> {
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let length = self.number()?;
                Value::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => self.take(4).map(|_| Value::Other)?,
            wire => {
                return Err(format!(
                    "it has a field of the unknown kind {wire}; it is no ONNX file"
                ));
            }
        };
        Ok((tag >> 3, value))
    }

    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("it has a number of more than 64 bits; it is no ONNX file".into())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let Some((taken, rest)) = self.0.split_at_checked(length) else {
            return Err(format!(
                "it ends within a field: {length} bytes are announced, {} follow",
                self.0.len()
            ));
        };
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_documentation_and_broken_ones_end_the_message() {
        fn all(bytes: &[u8]) -> Result<Vec<(u64, Value<'_>)>, ()> {
            Fields::new(bytes).collect::<Result<Vec<_>, _>>().map_err(drop)
        }
        assert_eq!(all(&[0x08, 0x96, 0x01]), Ok(vec![(1, Value::Number(150))]));
        assert_eq!(all(b"\x12\x03abc"), Ok(vec![(2, Value::Bytes(b"abc"))]));
        for broken in
            [&[0x08][..], &[0x08, 0x96], b"\x12\x04abc", &[0x0b, 1], &[0x08; 1], &[0xff; 12]]
        {
            assert_eq!(all(broken), Err(()), "{broken:?}");
        }
        assert_eq!(Fields::packed(&[1, 0x96, 0x01]), Ok(vec![1, 150]));
    }
}
