//! How far an operator sees in the image.

/// How far from its own place in the image a measurement depends on it: what ranks that hold parts of the image would have
/// to send each other. The nearer is the lesser.
///
/// ```
/// use haloscope::physics::{Blur, Padding, Physics, Reach, kernels};
///
/// let blur = Blur::new(&[1, 64, 64], &kernels::uniform(&[3, 5])?, Padding::Circular)?;
/// assert_eq!(blur.reach(), Reach::Local(2));
/// assert!(blur.reach() < Reach::Everywhere);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// At most so many pixels along each side. An image that begins again at its other end continues there.
    Local(usize),
    /// Anywhere in the image.
    Everywhere,
}
