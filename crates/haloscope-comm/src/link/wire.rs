//! How headers and control messages look between processes. All ranks run the same program on
//! machines of the same byte order, so words are sent as they are.

use super::{Channel, Header};
use crate::call::{Operation, Signature};
use crate::element::{ElementKind, Reduction};
use crate::error::{CallSite, Cause, Error};

/// Bytes before the payload of a frame.
pub(super) const HEADER_BYTES: usize = 40;

/// The size of every control message.
pub(super) const CONTROL_WORDS: usize = 512;

/// Longer texts are cut, so that two of them fit into a control message.
const TEXT_BYTES: usize = 1500;

/// Of longer lists of ranks the first ones are sent.
const MAX_RANKS: usize = 200;

pub(super) fn encode_header(header: &Header) -> [u64; HEADER_BYTES / 8] {
    let Signature { operation, kind, reduction, root, count, parts } = header.signature;
    let codes = operation as u64
        | kind.map_or(0, |kind| kind as u64) << 8
        | reduction.map_or(0, |reduction| reduction as u64) << 16
        | root.map_or(0, |root| u64::from(root) + 1) << 24;
    [header.channel.to_bits(), header.number, codes, count, parts]
}

pub(super) fn decode_header(words: &[u64]) -> Option<Header> {
    let [channel, number, codes, count, parts] = *words.first_chunk()?;
    let [operation, kind, reduction, ..] = codes.to_le_bytes();
    let signature = Signature {
        operation: Operation::ALL.into_iter().find(|known| *known as u8 == operation)?,
        kind: ElementKind::from_code(kind),
        reduction: Reduction::from_code(reduction),
        root: u32::try_from((codes >> 24).wrapping_sub(1)).ok(),
        count,
        parts,
    };
    Some(Header { channel: Channel::from_bits(channel), number, signature })
}

/// What ranks tell each other besides data.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Control {
    /// The job has ended.
    Failure(Error),
    /// Who is in this call?
    RollCall { channel: Channel, number: u64 },
    /// The answer.
    Present { channel: Channel, number: u64 },
    /// The sender makes no more calls.
    Leaving,
}

impl Control {
    pub(super) fn encode(&self, rank: usize) -> Vec<u64> {
        let mut writer = Writer(vec![rank as u64]);
        match self {
            Self::Failure(error) => writer.number(0).error(error),
            Self::RollCall { channel, number } => {
                writer.number(1).number(channel.to_bits()).number(*number)
            }
            Self::Present { channel, number } => {
                writer.number(2).number(channel.to_bits()).number(*number)
            }
            Self::Leaving => writer.number(3),
        };
        writer.0
    }

    /// The sender and the message; none if it is not one of ours.
    pub(super) fn decode(words: &[u64]) -> Option<(usize, Self)> {
        let mut reader = Reader(words);
        let rank = reader.rank()?;
        let control = match reader.number()? {
            0 => Self::Failure(reader.error()?),
            1 => Self::RollCall { channel: reader.channel()?, number: reader.number()? },
            2 => Self::Present { channel: reader.channel()?, number: reader.number()? },
            3 => Self::Leaving,
            _ => return None,
        };
        Some((rank, control))
    }
}

struct Writer(Vec<u64>);

impl Writer {
    fn number(&mut self, number: u64) -> &mut Self {
        self.0.push(number);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let text = &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES)];
        self.number(text.len() as u64);
        for piece in text.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.number(u64::from_le_bytes(word));
        }
        self
    }

    fn error(&mut self, error: &Error) -> &mut Self {
        match error {
            Error::Mismatch { first, second } => self.number(0).site(first).site(second),
            Error::RankFailed { rank, cause } => {
                let (code, text) = match cause {
                    Cause::Panicked(message) => (0, &message[..]),
                    Cause::Left => (1, ""),
                    Cause::Aborted(reason) => (2, &reason[..]),
                    Cause::Exited => (3, ""),
                    Cause::ReturnedError => (4, ""),
                };
                self.number(1).number(*rank as u64).number(code).text(text)
            }
            Error::Timeout { ranks, site, seconds } => self.number(2).delay(ranks, site, *seconds),
            Error::Stuck { ranks, site, seconds } => self.number(4).delay(ranks, site, *seconds),
            Error::Transport(text) => self.number(3).text(text),
            // Errors of one rank alone do not end the job, so they do not travel.
            Error::Argument { .. } | Error::Setup(_) | Error::Unsupported(_) => {
                debug_assert!(false, "{error} is not final");
                self.number(3).text(&error.to_string())
            }
        }
    }

    fn delay(&mut self, ranks: &[usize], site: &CallSite, seconds: f64) -> &mut Self {
        // A message has room for so many ranks; nobody would read the names of more.
        let ranks = &ranks[..ranks.len().min(MAX_RANKS)];
        self.number(ranks.len() as u64);
        self.0.extend(ranks.iter().map(|rank| *rank as u64));
        self.site(site).number(seconds.to_bits())
    }

    fn site(&mut self, site: &CallSite) -> &mut Self {
        self.number(site.rank as u64).number(site.number).text(&site.call)
    }
}

struct Reader<'a>(&'a [u64]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn rank(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok().filter(|length| *length <= TEXT_BYTES)?;
        let (words, rest) = self.0.split_at_checked(length.div_ceil(8))?;
        self.0 = rest;
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
        String::from_utf8(bytes).ok()
    }

    fn error(&mut self) -> Option<Error> {
        Some(match self.number()? {
            0 => Error::Mismatch { first: self.site()?, second: self.site()? },
            1 => {
                let (rank, code, text) = (self.rank()?, self.number()?, self.text()?);
                let cause = match code {
                    0 => Cause::Panicked(text),
                    1 => Cause::Left,
                    2 => Cause::Aborted(text),
                    3 => Cause::Exited,
                    4 => Cause::ReturnedError,
                    _ => return None,
                };
                Error::RankFailed { rank, cause }
            }
            2 => {
                let (ranks, site, seconds) = self.delay()?;
                Error::Timeout { ranks, site, seconds }
            }
            4 => {
                let (ranks, site, seconds) = self.delay()?;
                Error::Stuck { ranks, site, seconds }
            }
            3 => Error::Transport(self.text()?),
            _ => return None,
        })
    }

    fn delay(&mut self) -> Option<(Vec<usize>, CallSite, f64)> {
        let count = self.number()?.min(MAX_RANKS as u64);
        let ranks = (0..count).map(|_| self.rank()).collect::<Option<_>>()?;
        Some((ranks, self.site()?, f64::from_bits(self.number()?)))
    }

    fn channel(&mut self) -> Option<Channel> {
        self.number().map(Channel::from_bits)
    }

    fn site(&mut self) -> Option<CallSite> {
        Some(CallSite { rank: self.rank()?, number: self.number()?, call: self.text()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were() {
        for operation in Operation::ALL {
            for (kind, reduction, root) in [
                (None, None, None),
                (Some(ElementKind::F32), Some(Reduction::Min), Some(0)),
                (Some(ElementKind::U8), None, Some(u32::MAX)),
            ] {
                let (count, parts) = (u64::MAX, 5);
                let signature = Signature { operation, kind, reduction, root, count, parts };
                let header = Header { channel: Channel::WORLD.part(3), number: 77, signature };
                assert_eq!(decode_header(&encode_header(&header)), Some(header));
            }
        }
    }

    #[test]
    fn control_messages_come_back_as_they_were_and_fit() {
        let site = |rank| CallSite { rank, number: 3, call: "é".repeat(TEXT_BYTES / 2) };
        let failed = |cause| Error::RankFailed { rank: 4, cause };
        for control in [
            Control::Leaving,
            Control::Present { channel: Channel::WORLD, number: 5 },
            Control::RollCall { channel: Channel::WORLD.part(9), number: u64::MAX },
            Control::Failure(Error::Mismatch { first: site(1), second: site(2) }),
            Control::Failure(failed(Cause::Left)),
            Control::Failure(failed(Cause::Exited)),
            Control::Failure(failed(Cause::Panicked("ouch".into()))),
            Control::Failure(failed(Cause::Aborted("no disk".into()))),
            Control::Failure(failed(Cause::ReturnedError)),
            Control::Failure(Error::Timeout {
                ranks: (0..MAX_RANKS).collect(),
                site: site(3),
                seconds: 2.5,
            }),
            Control::Failure(Error::Stuck { ranks: vec![7], site: site(0), seconds: 1e6 }),
            Control::Failure(Error::Transport("lost".into())),
        ] {
            let words = control.encode(6);
            assert!(words.len() <= CONTROL_WORDS, "{} words", words.len());
            assert_eq!(Control::decode(&words), Some((6, control)));
        }
    }

    #[test]
    fn nonsense_is_not_a_control_message() {
        let mut rng = fastrand::Rng::with_seed(1);
        let good = Control::Failure(Error::Transport("x".repeat(99))).encode(0);
        for _ in 0..10_000 {
            let mut words = good.clone();
            words.truncate(rng.usize(0..=good.len()));
            if !words.is_empty() {
                let place = rng.usize(0..words.len());
                words[place] = rng.u64(..) >> rng.u32(0..64);
            }
            // Any answer will do; there must be one.
            let _ = Control::decode(&words);
        }
    }
}
