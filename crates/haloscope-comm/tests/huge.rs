//! Messages of more bytes than MPI's `int` can count. They need 10 GB of memory, so they run only
//! where `HALOSCOPE_HUGE` is set (`make soak`).

use haloscope_comm::{Collectives, Context, Error, Reduction};

#[test]
fn messages_of_more_than_2_to_the_31_bytes_arrive_whole() {
    if std::env::var_os("HALOSCOPE_HUGE").is_none() {
        println!("skipped: messages of more than 2^31 bytes, which make soak sends");
        return;
    }
    let length = (1_usize << 31) + 12_345;
    Context::threads(2, move |ctx| {
        let other = 1 - ctx.rank();
        let mut values = vec![0_u8; length];
        values.iter_mut().enumerate().for_each(|(i, v)| *v = (i % 251) as u8 + ctx.rank() as u8);
        let mut received = vec![0_u8; length];
        ctx.comm().exchange(&[(other, &values[..])], &mut [(other, &mut received[..])])?;
        let expected = |i: usize| (i % 251) as u8 + other as u8;
        assert!(received.iter().enumerate().all(|(i, v)| *v == expected(i)));
        ctx.comm().all_reduce(Reduction::Max, &mut values)?;
        assert!(values.iter().enumerate().all(|(i, v)| *v == (i % 251) as u8 + 1));
        Ok::<_, Error>(())
    })
    .expect("no rank fails");
}
