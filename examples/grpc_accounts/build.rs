//! The service's methods: what `accounts.proto` says, so that no build needs `protoc`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let method = |name: &str, route: &str, input: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type(input)
            .output_type("crate::wire::Cents")
            .codec_path("tonic_prost::ProstCodec")
            .build()
    };
    let accounts = Service::builder()
        .name("Accounts")
        .package("accounts")
        .method(method("deposit", "Deposit", "crate::wire::Cents"))
        .method(method("withdraw", "Withdraw", "crate::wire::Cents"))
        .method(method("balance", "Balance", "crate::wire::Nothing"))
        .build();
    Builder::new().compile(&[accounts]);
}
