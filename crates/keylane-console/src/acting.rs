//! An action that ends as a whole and is in the log, whatever its client does.

use tracing::Instrument;

use crate::refusal::Refusal;

/// Writes the line of an action, by what it has done.
type Log<T> = Box<dyn FnOnce(Result<&T, &Refusal>) + Send>;

/// Acts, and then writes the line, in a task of its own. The server drops a request whose client
/// has closed the connection: then what has begun would be cut off, or be done without a line.
///
/// # Errors
///
/// What the action is refused with; [`Refusal::Failed`] if it panics.
pub(crate) async fn done_and_logged<T: Send + 'static>(
    act: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    log: impl FnOnce(Result<&T, &Refusal>) + Send + 'static,
) -> Result<T, Refusal> {
    let line = Line(Some(Box::new(log)));
    let acting = async move {
        let mut line = line;
        let acted = act.await;
        line.write(acted.as_ref());
        acted
    };
    let acted = tokio::spawn(acting.in_current_span()).await;
    acted.unwrap_or(Err(Refusal::Failed))
}

/// The line of an action, which is written once.
struct Line<T>(Option<Log<T>>);

impl<T> Line<T> {
    fn write(&mut self, acted: Result<&T, &Refusal>) {
        if let Some(log) = self.0.take() {
            log(acted);
        }
    }
}

impl<T> Drop for Line<T> {
    fn drop(&mut self) {
        // The action has panicked, or the runtime ends.
        self.write(Err(&Refusal::Failed));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Writes the line into a channel.
    fn line(lines: &Sender<String>) -> impl FnOnce(Result<&u64, &Refusal>) + Send + use<> {
        let lines = lines.clone();
        move |acted| lines.send(format!("{acted:?}")).unwrap()
    }

    #[tokio::test]
    async fn an_action_has_one_line_also_if_it_panics() {
        let (lines, written) = channel();
        assert_eq!(done_and_logged(async { Ok(7) }, line(&lines)).await, Ok(7));
        let panics = async { panic!("planned") };
        let failed = done_and_logged(panics, line(&lines)).await;
        assert_eq!(failed, Err(Refusal::Failed));
        drop(lines);
        let written: Vec<_> = written.iter().collect();
        assert_eq!(written, ["Ok(7)", "Err(Failed)"]);
    }

    #[test]
    fn an_action_that_the_end_of_the_runtime_cuts_off_has_a_line() {
        let (lines, written) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::spawn(done_and_logged(pending(), line(&lines)));
            tokio::task::yield_now().await;
        });
        drop(runtime);
        assert_eq!(written.try_recv().as_deref(), Ok("Err(Failed)"));
    }
}
