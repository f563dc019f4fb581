//! Questions to a measuring process, asked without a process.
#![allow(dead_code)]

use std::sync::{Arc, Mutex};

use haloscope_job::{DeviceChoice, Distribution};
use haloscope_study::measure::answer;
use haloscope_study::plan::ScalingStudy;
use haloscope_study::problem::Problem;
use haloscope_study::row::{Backend, Layout, Mode, Row};
use haloscope_study::trial::{Answer, Question, Settings, Trial};

/// What a trial's process says.
#[derive(Default)]
pub(crate) struct Answers {
    pub rows: Vec<Row>,
    pub data: Vec<String>,
    pub images: Vec<Option<String>>,
}

pub(crate) fn ask(question: Question) -> (Answers, Vec<Answer>) {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let taken = answers.clone();
    answer(question, move |answer| {
        taken.lock().expect("no panic").push(answer);
        Ok(())
    })
    .expect("measured");
    let all = answers.lock().expect("no panic").clone();
    let mut sorted = Answers::default();
    for answer in &all {
        match answer.clone() {
            Answer::Data(digest) => sorted.data.push(digest),
            Answer::Repetition { rows, image } => {
                sorted.rows.extend(rows);
                sorted.images.push(image);
            }
            Answer::Link(_) | Answer::Peer(_) => (),
        }
    }
    (sorted, all)
}

pub(crate) fn measure(trial: &Trial) -> Answers {
    ask(Question::Trial(Box::new(trial.clone()))).0
}

pub(crate) fn settings() -> Settings {
    Settings { iterations: 2, ..Settings::default() }
}

pub(crate) fn study(problem: Problem, ranks: Vec<usize>, mode: Mode) -> ScalingStudy {
    ScalingStudy {
        problems: vec![problem],
        sizes: vec![32.into()],
        ranks,
        modes: vec![mode],
        backends: vec![Backend::Threads],
        distribute: vec![Distribution::Both],
        layouts: vec![Layout::Replicated],
        untiled: false,
        model: Some("drunet:2-2-2-2:1".parse().expect("a network")),
        patch: Some(16),
        overlap: Some(4),
        batch: Some(2),
        operators: 4,
        device: DeviceChoice::Cpu,
        threads: 1,
        repetitions: 2,
        full: false,
        counts_only: false,
        settings: settings(),
    }
}
