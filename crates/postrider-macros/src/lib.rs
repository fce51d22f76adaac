//! `#[derive(Event)]` for Postrider.
//!
//! Users add the crate `postrider`, which re-exports the macro beside the trait of the same name.

mod event;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements [`Event`](https://docs.rs/postrider/latest/postrider/trait.Event.html) for a struct or an enum.
///
/// On the type:
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `type = "order.placed"` | name of the event on every wire | required |
/// | `queue = "orders"` | queue in which the event is staged | required |
/// | `codec = path::To` | codec of the payload | `Json` |
/// | `crate = path::to::postrider` | path of the crate that has the trait | `::postrider` |
///
/// On a field, at most once each: `#[event(key)]` makes the field the ordering key, `#[event(subject)]` the subject. The field needs
/// `Display`.
///
/// ```ignore
/// #[derive(Event, Serialize, Deserialize)]
/// #[event(type = "order.placed", queue = "orders")]
/// struct OrderPlaced {
///     #[event(key)]
///     customer: u64,
///     total_cents: u64,
/// }
/// ```
#[proc_macro_derive(Event, attributes(event))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    event::expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}
