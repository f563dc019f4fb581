//! The few forms of protocol buffers that ONNX files need: numbers, bytes, and messages in messages.

/// A message in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// With a whole number.
    pub(crate) fn integer(mut self, field: u32, value: i64) -> Self {
        self.tag(field, 0);
        varint(&mut self.0, value.cast_unsigned());
        self
    }

    /// With a number in single precision.
    pub(crate) fn float(mut self, field: u32, value: f32) -> Self {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// With text.
    pub(crate) fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// With bytes.
    pub(crate) fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.length(field, bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }

    /// With numbers in single precision as bytes.
    pub(crate) fn raw_floats(mut self, field: u32, values: &[f32]) -> Self {
        self.length(field, size_of_val(values));
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self
    }

    /// With another message.
    pub(crate) fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// With several messages, which are let go one after the other.
    pub(crate) fn messages(mut self, field: u32, messages: impl IntoIterator<Item = Self>) -> Self {
        for message in messages {
            self = self.message(field, &message);
        }
        self
    }

    /// What is in the file.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn length(&mut self, field: u32, bytes: usize) {
        self.tag(field, 2);
        varint(&mut self.0, bytes as u64);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        varint(&mut self.0, u64::from(field << 3 | wire));
    }
}

/// Seven bits in each byte, the lowest first; the eighth says that more follow.
fn varint(target: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        target.push(value as u8 | 0x80);
        value >>= 7;
    }
    target.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the documentation of protocol buffers.
    #[test]
    fn messages_have_the_bytes_of_the_documentation() {
        assert_eq!(Message::default().integer(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing");
        assert_eq!(text.into_bytes(), b"\x12\x07testing");
        let inner = Message::default().integer(1, 150);
        let outer = Message::default().message(3, &inner);
        assert_eq!(outer.into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }

    #[test]
    fn negative_numbers_take_ten_bytes() {
        let minus_two = Message::default().integer(1, -2).into_bytes();
        let mut expected = vec![0x08, 0xfe];
        expected.extend([0xff; 8]);
        expected.push(0x01);
        assert_eq!(minus_two, expected);
    }
}
