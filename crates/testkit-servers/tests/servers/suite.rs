//! What every server does.

/// The tests of the server `$server`, which has a database `$database` from the start.
macro_rules! server_tests {
    ($server:ty, $database:literal) => {
        use std::time::Duration;

        use testkit_servers::ServerError;
        use tokio::time::Instant;

        use crate::killed::{self, State};
        use crate::processes::{is_dead, is_root, refuses, state, tree};

        /// The last part of a URL.
        fn name(url: &str) -> &str {
            url.rsplit('/').next().unwrap()
        }

        async fn start() -> $server {
            <$server>::start().await.unwrap()
        }

        #[tokio::test(start_paused = true)]
        async fn keeps_what_was_committed() {
            let clock = Instant::now();
            let server = start().await;
            let (url, port) = (server.create_database().await.unwrap(), server.port());
            let execute = |sql| server.execute(name(&url), sql);
            execute("create table orders (id int); insert into orders values (7)")
                .await
                .unwrap();

            let pids = tree(server.pid().unwrap());
            server.kill().await.unwrap();
            assert!(pids.iter().all(|pid| is_dead(*pid)));
            assert!(server.pid().is_none() && refuses(port));
            server.kill().await.unwrap(); // does nothing
            let asked = execute("select id from orders").await;
            assert!(
                matches!(asked, Err(ServerError::Program { .. })),
                "{asked:?}"
            );
            let paused = server.pause().await;
            assert!(matches!(paused, Err(ServerError::NotRunning)), "{paused:?}");

            server.start_again().await.unwrap();
            assert_eq!(execute("select id from orders").await.unwrap(), "7\n");
            let again = server.start_again().await;
            assert!(matches!(again, Err(ServerError::Running)), "{again:?}");

            server.stop().await.unwrap();
            assert!(server.pid().is_none() && refuses(port));
            server.stop().await.unwrap(); // does nothing
            server.start_again().await.unwrap();
            assert_eq!(execute("select id from orders").await.unwrap(), "7\n");
            assert_eq!(server.port(), port);
            assert_eq!(
                clock.elapsed(),
                Duration::ZERO,
                "the clock of the test ran on"
            );
        }

        #[tokio::test]
        async fn hangs_while_it_is_paused() {
            let server = start().await;
            server.pause().await.unwrap();
            let pids = tree(server.pid().unwrap());
            let states: Vec<_> = pids.iter().map(|pid| state(*pid)).collect();
            // A session that ended just before is buried later, by the server.
            let stands = |state: &_| matches!(state, Some('T' | 'Z'));
            assert!(states.iter().all(stands), "{states:?}");
            let mut query = Box::pin(server.execute($database, "select 40 + 2"));
            let hangs = tokio::time::timeout(Duration::from_millis(500), &mut query);
            assert!(hangs.await.is_err());
            server.resume().await.unwrap();
            assert_eq!(query.await.unwrap(), "42\n");

            // It can be killed and stopped all the same.
            server.pause().await.unwrap();
            server.kill().await.unwrap();
            assert!(pids.iter().all(|pid| is_dead(*pid)));
            server.start_again().await.unwrap();
            server.pause().await.unwrap();
            server.stop().await.unwrap();
            assert_eq!(server.pid(), None);
        }

        #[tokio::test]
        async fn shares_nothing_and_leaves_nothing() {
            let (one, two) = tokio::join!(start(), start());
            assert_ne!(one.port(), two.port());
            let first = one.create_database().await.unwrap();
            let second = one.create_database().await.unwrap();
            assert_ne!(first, second);
            let create = "create table orders (id int)";
            one.execute(name(&first), create).await.unwrap();
            one.execute(name(&second), create).await.unwrap();
            let absent = two.execute(name(&first), "select 1").await.unwrap_err();
            assert!(absent.to_string().contains(name(&first)), "{absent}");
            assert!(!absent.to_string().contains(<$server>::PASSWORD));
            assert!(!one.log().is_empty());

            let pids = tree(one.pid().unwrap());
            assert!(!is_root(pids[0]));
            let (folder, port) = (one.folder().to_owned(), one.port());
            assert!(folder.is_dir());
            drop(one);
            assert!(pids.iter().all(|pid| is_dead(*pid)));
            assert!(!folder.exists() && refuses(port));
            assert_eq!(two.execute($database, "select 1").await.unwrap(), "1\n");
        }

        #[tokio::test]
        async fn brings_back_what_was_written_down() {
            let server = start().await;
            let url = server.create_database().await.unwrap();
            let execute = |sql| server.execute(name(&url), sql);
            let create = "create table orders (id int); insert into orders values (7)";
            execute(create).await.unwrap();
            let dump = server.dump(name(&url)).await.unwrap();
            execute("update orders set id = 8").await.unwrap();
            server.bring_back(name(&url), &dump).await.unwrap();
            assert_eq!(execute("select id from orders").await.unwrap(), "7\n");
            let absent = server.dump("absent").await.unwrap_err();
            assert!(absent.to_string().contains("absent"), "{absent}");
        }

        #[tokio::test]
        async fn a_standby_has_what_its_primary_has_confirmed() {
            let first = <$server>::start_primary().await.unwrap();
            let second = first.standby().await.unwrap();
            first.synchronous(&second).await.unwrap();
            let url = first.create_database().await.unwrap();
            let create = "create table orders (id int)";
            first.execute(name(&url), create).await.unwrap();
            let mut primary = &first;
            let mut standby = &second;
            for id in 1..=3 {
                let insert = format!("insert into orders values ({id})");
                primary.execute(name(&url), &insert).await.unwrap();
                primary.kill().await.unwrap();
                standby.promote().await.unwrap();
                let count = standby.execute(name(&url), "select count(*) from orders");
                assert_eq!(count.await.unwrap(), format!("{id}\n"));
                std::mem::swap(&mut primary, &mut standby);
                let runs = primary.rejoin(standby.port()).await.unwrap_err();
                assert!(matches!(runs, ServerError::Running), "{runs:?}");
                standby.rejoin(primary.port()).await.unwrap();
                primary.synchronous(standby).await.unwrap();
            }
        }

        #[test]
        fn dies_with_a_killed_test() {
            let child = concat!(module_path!(), "::child");
            killed::outlived_by_nothing(child, State::Running);
        }

        #[test]
        fn dies_with_a_killed_test_while_it_is_paused() {
            let child = concat!(module_path!(), "::child");
            killed::outlived_by_nothing(child, State::Paused);
        }

        /// The test that is killed. It does nothing when it is not started by one of those above.
        #[tokio::test]
        async fn child() {
            let Some(state) = killed::state() else { return };
            let server = start().await;
            if state == State::Paused {
                server.pause().await.unwrap();
            }
            let folder = server.folder().to_str().unwrap();
            killed::report(server.pid().unwrap(), server.port(), folder);
            std::future::pending::<()>().await;
        }
    };
}

pub(crate) use server_tests;
