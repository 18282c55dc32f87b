//! As much of SVG as the pictures of the examples need.

use std::fmt::{Display, Write as _};

/// A picture under construction. Text must not contain `<` or `&`, unless it is [`escaped`].
#[derive(Debug)]
pub struct Svg {
    text: String,
}

/// Which end of a text its position is.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// The text begins there.
    Start,
    /// The text has its middle there.
    Middle,
    /// The text ends there.
    End,
}

impl Svg {
    /// Begins a picture. Its ground is of the class `ground`, which `style` must define, so that it
    /// can be read on any page.
    pub fn new(width: f64, height: f64, style: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\">\n\
             <style>{style}</style>\n"
        );
        let mut svg = Self { text };
        svg.rect(0.0, 0.0, width, height, "ground");
        svg
    }

    /// Begins one whose title and description a screen reader reads.
    pub fn described(width: f64, height: f64, style: &str, title: &str, text: &str) -> Self {
        let mut svg = Self::new(width, height, style);
        let tag = "<svg role=\"img\" aria-labelledby=\"title text\"";
        svg.text = svg.text.replacen("<svg", tag, 1).replacen(
            "<style>",
            &format!(
                "<title id=\"title\">{title}</title>\n<desc id=\"text\">{text}</desc>\n<style>"
            ),
            1,
        );
        svg
    }

    /// Draws a rectangle.
    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        self.line(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        ));
    }

    /// Draws a path.
    pub fn path(&mut self, steps: &str, class: &str) {
        self.line(format_args!("<path d=\"{steps}\" class=\"{class}\"/>"));
    }

    /// Writes a text.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.line(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    /// Draws something with a title, which is shown when the pointer is over it.
    pub fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Self)) {
        self.line(format_args!("<g><title>{title}</title>"));
        draw(self);
        self.line("</g>");
    }

    /// Draws a part with a name.
    pub fn group(&mut self, id: &str, draw: impl FnOnce(&mut Self)) {
        self.line(format_args!("<g id=\"{id}\">"));
        draw(self);
        self.line("</g>");
    }

    /// Ends the picture, and returns its text.
    pub fn finish(mut self) -> String {
        self.line("</svg>");
        self.text
    }

    fn line(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "{line}");
    }
}

/// Returns a text as it must be written in a picture.
pub fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
