//! A table as studies write it, with times from a simple cost formula and noise, for tests of what shows tables.

use std::fmt::Write;

use haloscope_study::columns::names;

/// Cells by column.
type Cells = Vec<(&'static str, String)>;

/// All studies: some thousand rows.
pub(crate) fn everything() -> String {
    let mut sample = Sample::new();
    sample.scaling();
    sample.memory();
    sample.batches();
    sample.comparison();
    sample.contention();
    sample.counts();
    sample.overlaps();
    sample.text
}

/// The study of memory alone.
pub(crate) fn memory_only() -> String {
    let mut sample = Sample::new();
    sample.memory();
    sample.text
}

struct Sample {
    text: String,
    /// Deviations from the formulas, the same each time.
    noise: u64,
}

impl Sample {
    fn new() -> Self {
        Self { text: names().collect::<Vec<_>>().join(",") + "\n", noise: 1 }
    }

    fn row(&mut self, cells: &Cells) {
        let cell = |name: &str| {
            let found = cells.iter().find(|(column, _)| *column == name);
            found.map_or_else(String::new, |(_, value)| value.clone())
        };
        let line: Vec<String> = names().map(cell).collect();
        let _ = writeln!(self.text, "{}", line.join(","));
    }

    /// A factor near 1.
    fn jitter(&mut self, amount: f64) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        1.0 + amount * ((self.noise >> 33) as f64 / f64::from(1_u32 << 31) - 0.5)
    }

    fn scaling(&mut self) {
        for (problem, depth, sizes) in [
            ("deblur", None, &[1024_u64, 2048][..]),
            ("tomography-2d", None, &[1024]),
            ("tomography-3d", Some(128), &[128]),
        ] {
            for &size in sizes {
                for backend in ["threads", "mpi"] {
                    for ranks in [1, 2, 4] {
                        for repetition in 0..3 {
                            self.iterations(
                                problem,
                                size,
                                depth,
                                backend,
                                ranks,
                                Some(repetition),
                                "strong",
                            );
                        }
                    }
                }
                for power in 0..=10 {
                    self.iterations(problem, size, depth, "mpi", 1 << power, None, "strong");
                }
            }
        }
        for (ranks, size) in [(1, 512), (2, 724), (4, 1024)] {
            for repetition in 0..3 {
                self.iterations("deblur", size, None, "threads", ranks, Some(repetition), "weak");
            }
        }
    }

    /// Rows of a repetition, or of a prediction, which has one row for each rank up to eight.
    #[allow(clippy::too_many_arguments)]
    fn iterations(
        &mut self,
        problem: &str,
        size: u64,
        depth: Option<u64>,
        backend: &str,
        ranks: u64,
        repetition: Option<u64>,
        mode: &str,
    ) {
        let pixels = (size * size * depth.unwrap_or(1)) as f64;
        let patch = if depth.is_some() { 32 } else { 128 };
        let data = pixels * if depth.is_some() { 2.4e-7 } else { 4.0e-7 } / ranks as f64;
        let prior = pixels * 3.2e-6 / ranks as f64 * (1.0 + 0.012 * (ranks as f64).sqrt());
        let transfer =
            if ranks == 1 { 0.0 } else { pixels * 2.0e-8 + 2e-5 * (ranks as f64).log2() };
        let iterations = if repetition.is_some() { 5 } else { 1 };
        for iteration in 1..=iterations {
            let mut totals = Vec::new();
            for rank in 0..if repetition.is_some() { ranks } else { 1 } {
                let spread = if repetition.is_some() { 0.05 } else { 0.0 };
                let lag = if rank == 0 { 1.0 } else { 0.97 };
                let factor = self.jitter(spread) * lag;
                totals.push((rank, data * factor, prior * factor));
            }
            let slowest = totals.iter().map(|(_, data, prior)| data + prior).fold(0.0, f64::max);
            let total = (slowest + transfer) * 1.01;
            for (rank, data, prior) in totals {
                let waiting = (slowest - data - prior).max(0.0);
                let computed = pixels / ranks as f64 * (f64::from(patch) + 32.0).powi(2)
                    / f64::from(patch).powi(2);
                let mut cells: Cells = vec![
                    ("study", "scaling".into()),
                    ("predicted", repetition.is_none().to_string()),
                    ("system", "haloscope".into()),
                    ("problem", problem.into()),
                    ("mode", mode.into()),
                    ("backend", backend.into()),
                    ("model", "drunet".into()),
                    ("height", size.to_string()),
                    ("width", size.to_string()),
                    ("depth", depth.map_or_else(String::new, |depth| depth.to_string())),
                    ("patch", patch.to_string()),
                    ("overlap", "16".into()),
                    ("batch", "1".into()),
                    ("operators", "8".into()),
                    ("distribute", "both".into()),
                    ("layout", "replicated".into()),
                    ("ranks", ranks.to_string()),
                    ("threads", "1".into()),
                    ("repetition", repetition.unwrap_or(0).to_string()),
                    ("iteration", iteration.to_string()),
                    ("rank", rank.to_string()),
                    ("total_seconds", total.to_string()),
                    ("data_seconds", (data + transfer * 0.6).to_string()),
                    ("prior_seconds", (prior + transfer * 0.4 + waiting).to_string()),
                    ("transfer_seconds", transfer.to_string()),
                    ("waiting_seconds", waiting.to_string()),
                    (
                        "bytes_sent",
                        if ranks == 1 { 0 } else { pixels as u64 * 24 / ranks }.to_string(),
                    ),
                    ("pixels_computed", (computed as u64).to_string()),
                    ("pixels_kept", ((pixels / ranks as f64) as u64).to_string()),
                ];
                if repetition.is_none() {
                    cells.push(("low_seconds", (0.9 * total).to_string()));
                    cells.push(("high_seconds", (1.2 * total).to_string()));
                }
                if repetition.is_some() {
                    let decay = 0.5_f64.powi(iteration);
                    cells.extend([
                        ("peak_bytes", (2e8 + pixels * 180.0 / ranks as f64).round().to_string()),
                        (
                            "resident_bytes",
                            (1.8e8 + pixels * 160.0 / ranks as f64).round().to_string(),
                        ),
                        ("data_term", (pixels * (0.01 + decay)).to_string()),
                        ("relative_change", (0.3 * decay).to_string()),
                        ("psnr_db", (30.0 - 8.0 * decay).to_string()),
                    ]);
                }
                self.row(&cells);
            }
        }
    }

    fn memory(&mut self) {
        for (model, bytes, seconds) in
            [("drunet", 1450.0, 1.3e-5), ("unet", 820.0, 4.4e-6), ("dncnn", 560.0, 4.1e-6)]
        {
            for width in (1024..=2048_u64).step_by(64) {
                let pixels = (2048 * width) as f64;
                let predicted = 1.3e8 + pixels * bytes;
                let measured = predicted * self.jitter(0.03);
                let seconds = pixels * seconds * self.jitter(0.04);
                self.row(&vec![
                    ("study", "memory".into()),
                    ("predicted", "false".into()),
                    ("system", "haloscope".into()),
                    ("backend", "solo".into()),
                    ("model", model.into()),
                    ("height", "2048".into()),
                    ("width", width.to_string()),
                    ("ranks", "1".into()),
                    ("threads", "2".into()),
                    ("repetition", "0".into()),
                    ("rank", "0".into()),
                    ("total_seconds", seconds.to_string()),
                    ("peak_bytes", measured.round().to_string()),
                    ("predicted_bytes", predicted.round().to_string()),
                ]);
            }
        }
    }

    fn batches(&mut self) {
        for (patch, gain) in [(128_u64, 0.06), (256, 0.02), (512, -0.01)] {
            for batch in [1_u64, 2, 4, 8, 16] {
                for repetition in 0..3 {
                    let seconds = 2048.0 * 2048.0 * 1.3e-5 / (1.0 + gain * (batch as f64).log2());
                    let seconds = seconds * self.jitter(0.03);
                    self.row(&vec![
                        ("study", "batch".into()),
                        ("predicted", "false".into()),
                        ("system", "haloscope".into()),
                        ("backend", "solo".into()),
                        ("model", "drunet".into()),
                        ("height", "2048".into()),
                        ("width", "2048".into()),
                        ("patch", patch.to_string()),
                        ("overlap", "0".into()),
                        ("batch", batch.to_string()),
                        ("ranks", "1".into()),
                        ("threads", "2".into()),
                        ("repetition", repetition.to_string()),
                        ("rank", "0".into()),
                        ("total_seconds", seconds.to_string()),
                        ("peak_bytes", (130_000_000 + patch * patch * batch * 1450).to_string()),
                        ("automatic_batch", "4".into()),
                    ]);
                }
            }
        }
    }

    fn comparison(&mut self) {
        for (system, slower) in [("haloscope", 1.0), ("deepinv", 4.1)] {
            for (problem, seconds) in [("deblur", 3.7), ("tomography-2d", 3.9)] {
                for (ranks, backend) in
                    [(1_i32, "solo"), (2, if slower > 1.0 { "torchrun" } else { "threads" })]
                {
                    for (repetition, iteration) in (0..9).map(|step| (step / 3, 1 + step % 3)) {
                        let seconds = seconds * slower * self.jitter(0.04) / f64::from(ranks);
                        let quality = 30.0 - 8.0 * 0.5_f64.powi(iteration);
                        let peak: f64 = 1.2e9 * if slower > 1.0 { 1.7 } else { 1.0 };
                        self.row(&vec![
                            ("study", "compare".into()),
                            ("predicted", "false".into()),
                            ("system", system.into()),
                            ("problem", problem.into()),
                            ("backend", backend.into()),
                            ("model", "drunet".into()),
                            ("height", "1024".into()),
                            ("width", "1024".into()),
                            ("ranks", ranks.to_string()),
                            ("threads", (2 / ranks).to_string()),
                            ("repetition", repetition.to_string()),
                            ("iteration", iteration.to_string()),
                            ("rank", "0".into()),
                            ("total_seconds", seconds.to_string()),
                            ("peak_bytes", peak.round().to_string()),
                            ("psnr_db", quality.to_string()),
                        ]);
                    }
                }
            }
        }
    }

    fn contention(&mut self) {
        for rank in 0..2 {
            let factor = 1.1 * self.jitter(0.02);
            self.row(&vec![
                ("study", "scaling".into()),
                ("predicted", "false".into()),
                ("system", "haloscope".into()),
                ("problem", "deblur".into()),
                ("mode", "contention".into()),
                ("backend", "threads".into()),
                ("model", "drunet".into()),
                ("height", "1024".into()),
                ("width", "1024".into()),
                ("patch", "128".into()),
                ("overlap", "16".into()),
                ("batch", "1".into()),
                ("operators", "8".into()),
                ("distribute", "both".into()),
                ("layout", "replicated".into()),
                ("ranks", "2".into()),
                ("threads", "1".into()),
                ("repetition", "0".into()),
                ("iteration", "1".into()),
                ("rank", rank.to_string()),
                ("total_seconds", (3.8 * factor).to_string()),
                ("data_seconds", (0.42 * factor).to_string()),
                ("prior_seconds", (3.36 * factor).to_string()),
            ]);
        }
    }

    fn counts(&mut self) {
        for (layout, bytes) in [("replicated", 48_000_000_u64), ("sharded", 6_000_000)] {
            for ranks in [2_u64, 4, 8, 16, 32, 64] {
                for rank in 0..ranks {
                    let sent = if layout == "sharded" { bytes / ranks } else { bytes };
                    self.row(&vec![
                        ("study", "counts".into()),
                        ("predicted", "false".into()),
                        ("system", "haloscope".into()),
                        ("problem", "deblur".into()),
                        ("mode", "strong".into()),
                        ("backend", "threads".into()),
                        ("model", "drunet:4-4-4-4:1".into()),
                        ("height", "384".into()),
                        ("width", "384".into()),
                        ("operators", "8".into()),
                        ("distribute", "both".into()),
                        ("layout", layout.into()),
                        ("ranks", ranks.to_string()),
                        ("threads", "1".into()),
                        ("repetition", "0".into()),
                        ("iteration", "2".into()),
                        ("rank", rank.to_string()),
                        ("total_seconds", "0".into()),
                        ("bytes_sent", (sent + rank).to_string()),
                        ("predicted_bytes_sent", (sent + rank).to_string()),
                        ("halo_rounds", "58".into()),
                        ("predicted_halo_rounds", "58".into()),
                        ("pixels_computed", (384 * 384 / ranks + rank % 2).to_string()),
                    ]);
                }
            }
        }
    }

    fn overlaps(&mut self) {
        for (model, reach) in [("builtin:color", 18.0), ("dncnn", 9.0)] {
            for level in ["0.02", "0.05", "0.1"] {
                for overlap in [0_u32, 8, 16, 32, 64] {
                    let level_factor: f64 = level.parse().expect("a number");
                    let seam = 0.2 * level_factor * (-f64::from(overlap) / reach).exp();
                    self.row(&vec![
                        ("study", "overlap".into()),
                        ("predicted", "false".into()),
                        ("system", "haloscope".into()),
                        ("backend", "solo".into()),
                        ("model", model.into()),
                        ("height", "512".into()),
                        ("width", "512".into()),
                        ("patch", "128".into()),
                        ("overlap", overlap.to_string()),
                        ("level", level.into()),
                        ("ranks", "1".into()),
                        ("threads", "2".into()),
                        ("repetition", "0".into()),
                        ("rank", "0".into()),
                        ("total_seconds", "0.5".into()),
                        ("seam_rms", seam.to_string()),
                        ("seam_largest", (12.0 * seam).to_string()),
                        ("psnr_db", (36.0 - 40.0 * level_factor - 20.0 * seam).to_string()),
                        ("pixels_computed", ((512 + overlap) * (512 + overlap)).to_string()),
                    ]);
                }
            }
        }
    }
}
