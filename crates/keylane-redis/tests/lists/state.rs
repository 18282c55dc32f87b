//! Invariants of the keys beside a list. The script of the check is independent of those of the
//! crate.

use redis::aio::ConnectionLike;
use redis::{Script, cmd};

/// The name of a key beside a list.
pub(crate) fn beside(list: &str, what: &str) -> String {
    let tag = list
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    match tag {
        Some((tag, _)) => format!("{{{tag}}}:keylane:{}:{list}:{what}", list.len()),
        None => format!("{{{list}}}:keylane:{what}"),
    }
}

/// Fails if an invariant is broken at this moment; the list may be in use.
///
/// For each key with an owner, the count is the number of its elements at that worker, and no other
/// worker has any. Only held elements have attempts, and only known workers have elements.
pub(crate) async fn check(server: &mut impl ConnectionLike, list: &str) {
    let script = Script::new(include_str!("state.lua"));
    let mut call = script.key(list);
    let wrong: Vec<String> = call
        .arg(beside(list, ""))
        .invoke_async(server)
        .await
        .expect("the state can be read");
    assert!(wrong.is_empty(), "{list}:\n{}", wrong.join("\n"));
}

/// Fails if anything is left of workers that have all gone, and of a list that was worked off.
pub(crate) async fn check_idle(server: &mut impl ConnectionLike, list: &str) {
    check(server, list).await;
    let left = keys(server, &beside(list, "*")).await;
    let may_stay = ["token", "letters"].map(|what| beside(list, what));
    let left: Vec<_> = left
        .iter()
        .filter(|name| !may_stay.contains(name))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    let waiting: u64 = cmd("LLEN").arg(list).query_async(server).await.unwrap();
    assert_eq!(waiting, 0, "elements of {list}");
}

async fn keys(server: &mut impl ConnectionLike, pattern: &str) -> Vec<String> {
    cmd("KEYS").arg(pattern).query_async(server).await.unwrap()
}

/// The check detects the errors it is for.
mod tests {
    use redis::aio::MultiplexedConnection;
    use testkit_servers::RedisKind;

    use super::*;
    use crate::support::{connect, new_name, shared};

    fn element(key: &str) -> Vec<u8> {
        let mut element = b"\0kl1\0\0\0\0\x05\0\0\0".to_vec();
        element.push(u8::try_from(key.len()).unwrap());
        element.extend(key.as_bytes());
        element
    }

    async fn is_right(server: &MultiplexedConnection, list: &str) -> bool {
        let (mut server, list) = (server.clone(), list.to_owned());
        tokio::spawn(async move { check(&mut server, &list).await })
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn each_thing_that_is_wrong_is_found() {
        let mut server = connect(&shared(RedisKind::Redis7).await.url()).await;
        let list = new_name("state");
        let name = |what: &str| beside(&list, what);
        let right = async |server: &mut MultiplexedConnection| {
            let mut all = redis::pipe();
            for what in [
                "owners",
                "work:w",
                "inbox:w",
                "attempts:w",
                "told",
                "work:x",
            ] {
                all.cmd("DEL").arg(name(what));
            }
            all.cmd("SET").arg(name("token")).arg(5);
            all.cmd("ZADD").arg(name("workers")).arg(1).arg("w");
            all.cmd("HSET").arg(name("work:w")).arg(4).arg(element("a"));
            all.cmd("RPUSH").arg(name("inbox:w")).arg(element("a"));
            all.cmd("HSET").arg(name("owners")).arg("a").arg("2:w");
            all.cmd("HSET").arg(name("attempts:w")).arg(4).arg(1);
            all.exec_async(server).await.unwrap();
        };
        right(&mut server).await;
        check(&mut server, &list).await;
        let wrongs: [&[&str]; 9] = [
            &["HSET", "owners", "a", "1:w"],
            &["HSET", "owners", "b", "1:w"],
            &["HSET", "owners", "a", "2:x"],
            &["HDEL", "owners", "a"],
            &["HSET", "attempts:w", "3", "1"],
            &["HSET", "work:x", "3", "plain"],
            &["HSET", "work:w", "6", "plain"],
            &["RPUSH", "inbox:w", "plain"],
            &["HSET", "told", "x", "1"],
        ];
        for wrong in wrongs {
            right(&mut server).await;
            let mut change = cmd(wrong[0]);
            change.arg(name(wrong[1])).arg(&wrong[2..]);
            change.exec_async(&mut server).await.unwrap();
            assert!(!is_right(&server, &list).await, "{wrong:?}");
        }
    }
}
