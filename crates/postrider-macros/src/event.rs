//! The expansion of `#[derive(Event)]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Index, Lit, LitStr, Member, Path, Result,
    Token, ext::IdentExt, parse::ParseStream, spanned::Spanned,
};

/// The longest name of a queue or of an event type, as `postrider_core::limits::NAME_BYTES` has it.
const NAME_BYTES: usize = 255;

const USAGE: &str = "write #[event(type = \"order.placed\", queue = \"orders\")]";

/// The arguments of `#[event(…)]` on the type.
#[derive(Default)]
struct TypeArguments {
    event_type: Option<LitStr>,
    queue: Option<LitStr>,
    codec: Option<Path>,
    krate: Option<Path>,
}

/// The fields that are marked with `#[event(key)]` and `#[event(subject)]`.
#[derive(Default)]
struct FieldRoles {
    key: Option<Member>,
    subject: Option<Member>,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let arguments = TypeArguments::parse(&input.attrs)?;
    let missing = |name: &str| Error::new(input.ident.span(), format!("the event has no {name}: {USAGE}"));
    let event_type = arguments.event_type.ok_or_else(|| missing("type"))?;
    let queue = arguments.queue.ok_or_else(|| missing("queue"))?;
    let roles = FieldRoles::parse(&input.data)?;

    let krate = arguments.krate.map_or_else(|| quote!(::postrider), |path| quote!(#path));
    let codec = arguments.codec.map_or_else(|| quote!(#krate::Json), |path| quote!(#path));
    let key = roles.key.map(|field| accessor(&quote!(key), &field));
    let subject = roles.subject.map(|field| accessor(&quote!(subject), &field));
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::Event for #name #type_generics #where_clause {
            const TYPE: &'static str = #event_type;
            const QUEUE: &'static str = #queue;
            type Codec = #codec;
            #key
            #subject
        }
    })
}

fn accessor(method: &TokenStream, field: &Member) -> TokenStream {
    quote! {
        fn #method(&self) -> ::core::option::Option<::std::string::String> {
            ::core::option::Option::Some(::std::string::ToString::to_string(&self.#field))
        }
    }
}

impl TypeArguments {
    fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut arguments = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("event")) {
            attribute.parse_args_with(|input: ParseStream<'_>| arguments.read(input))?;
        }
        Ok(arguments)
    }

    /// Reads `name = value, …`. `type` and `crate` are keywords, so names are read with [`IdentExt::parse_any`].
    fn read(&mut self, input: ParseStream<'_>) -> Result<()> {
        while !input.is_empty() {
            let name = input.call(syn::Ident::parse_any)?;
            if !input.peek(Token![=]) {
                return Err(Error::new(name.span(), format!("`{name}` has no value here: {USAGE}")));
            }
            input.parse::<Token![=]>()?;
            match name.to_string().as_str() {
                "type" => set(&mut self.event_type, name_value(input)?, name.span())?,
                "queue" => set(&mut self.queue, name_value(input)?, name.span())?,
                "codec" => set(&mut self.codec, input.parse()?, name.span())?,
                "crate" => set(&mut self.krate, input.parse()?, name.span())?,
                other => {
                    let message = format!("unknown argument `{other}`: use type, queue, codec or crate");
                    return Err(Error::new(name.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }
}

/// A string literal that is a legal name, checked here so that a bad one fails when it is compiled and not when it is staged.
fn name_value(input: ParseStream<'_>) -> Result<LitStr> {
    let value: Expr = input.parse()?;
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &value else {
        return Err(Error::new(value.span(), "use a string literal"));
    };
    let bytes = text.value().len();
    if bytes == 0 || bytes > NAME_BYTES || text.value().chars().any(char::is_control) {
        let rule = format!("use 1 to {NAME_BYTES} bytes without control characters");
        return Err(Error::new(text.span(), rule));
    }
    Ok(text.clone())
}

impl FieldRoles {
    fn parse(data: &Data) -> Result<Self> {
        let mut roles = Self::default();
        match data {
            Data::Struct(data) => {
                for (index, field) in data.fields.iter().enumerate() {
                    roles.read(index, field)?;
                }
            }
            Data::Enum(data) => {
                for field in data.variants.iter().flat_map(|variant| &variant.fields) {
                    if let Some(attribute) = field.attrs.iter().find(|each| each.path().is_ident("event")) {
                        let message =
                            "fields of an enum cannot be the key or the subject: implement `Event` by hand";
                        return Err(Error::new(attribute.span(), message));
                    }
                }
            }
            Data::Union(data) => {
                return Err(Error::new(data.union_token.span, "a union cannot be an event"));
            }
        }
        Ok(roles)
    }

    fn read(&mut self, index: usize, field: &Field) -> Result<()> {
        let member = || match &field.ident {
            Some(ident) => Member::Named(ident.clone()),
            None => Member::Unnamed(Index::from(index)),
        };
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("event")) {
            attribute.parse_nested_meta(|meta| {
                let role = if meta.path.is_ident("key") {
                    &mut self.key
                } else if meta.path.is_ident("subject") {
                    &mut self.subject
                } else {
                    return Err(meta.error("unknown argument on a field: use key or subject"));
                };
                set(role, member(), meta.path.span())
            })?;
        }
        Ok(())
    }
}

fn set<T>(slot: &mut Option<T>, value: T, at: Span) -> Result<()> {
    if slot.replace(value).is_some() {
        return Err(Error::new(at, "given twice"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test fails by panicking")]

    use super::*;

    /// The text of the error that deriving for this source gives.
    fn rejection(source: &str) -> String {
        let input = syn::parse_str(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        expand(&input).map_or_else(|error| error.to_string(), |code| panic!("accepted: {code}"))
    }

    #[test]
    fn derive_with_a_mistake_gives_an_error_that_says_what_to_write() {
        let cases = [
            (
                "struct E;",
                "the event has no type: write #[event(type = \"order.placed\", queue = \"orders\")]",
            ),
            (
                "#[event(type = \"a\")] struct E;",
                "the event has no queue: write #[event(type = \"order.placed\", queue = \"orders\")]",
            ),
            (
                "#[event(type)] struct E;",
                "`type` has no value here: write #[event(type = \"order.placed\", queue = \"orders\")]",
            ),
            ("#[event(name = \"a\")] struct E;", "unknown argument `name`: use type, queue, codec or crate"),
            ("#[event(type = \"a\", type = \"b\")] struct E;", "given twice"),
            ("#[event(type = 17)] struct E;", "use a string literal"),
            ("#[event(queue = \"\")] struct E;", "use 1 to 255 bytes without control characters"),
            ("#[event(queue = \"a\\n\")] struct E;", "use 1 to 255 bytes without control characters"),
            (
                "#[event(type = \"a\", queue = \"b\")] struct E { #[event(order)] a: u8 }",
                "unknown argument on a field: use key or subject",
            ),
            (
                "#[event(type = \"a\", queue = \"b\")] struct E { #[event(key)] a: u8, #[event(key)] b: u8 }",
                "given twice",
            ),
            (
                "#[event(type = \"a\", queue = \"b\")] enum E { A { #[event(key)] a: u8 } }",
                "fields of an enum cannot be the key or the subject: implement `Event` by hand",
            ),
            ("#[event(type = \"a\", queue = \"b\")] union E { a: u8 }", "a union cannot be an event"),
        ];
        for (source, expected) in cases {
            assert_eq!(rejection(source), expected, "{source}");
        }
    }
}
