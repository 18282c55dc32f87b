//! As much of SVG as the picture needs.

use std::fmt::{Display, Write as _};

/// A picture under construction. Text must not contain `<` or `&`: all of it is our own.
#[derive(Debug)]
pub(crate) struct Svg {
    text: String,
}

/// Which end of a text its position is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// With a white ground, so that it can be read on a dark page too.
    pub(crate) fn new(width: f64, height: f64, style: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\">\n\
             <style>{style}</style>\n"
        );
        let mut svg = Self { text };
        svg.rect(0.0, 0.0, width, height, "ground");
        svg
    }

    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        self.line(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        ));
    }

    pub(crate) fn path(&mut self, steps: &str, class: &str) {
        self.line(format_args!("<path d=\"{steps}\" class=\"{class}\"/>"));
    }

    pub(crate) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.line(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    /// What a reader sees who points at what `draw` draws.
    pub(crate) fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Self)) {
        self.line(format_args!("<g><title>{title}</title>"));
        draw(self);
        self.line("</g>");
    }

    /// A part with a name.
    pub(crate) fn group(&mut self, id: &str, draw: impl FnOnce(&mut Self)) {
        self.line(format_args!("<g id=\"{id}\">"));
        draw(self);
        self.line("</g>");
    }

    pub(crate) fn finish(mut self) -> String {
        self.line("</svg>");
        self.text
    }

    fn line(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "{line}");
    }
}
