//! Which changes can be made, and which of them are taken.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// One possible change. Ranges are bytes of its file.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub id: u32,
    pub file: String,
    pub line: usize,
    pub function: String,
    pub what: String,
    pub change: Change,
}

impl Mutant {
    pub fn label(&self) -> String {
        format!("{}:{} {}: {}", self.file, self.line, self.function, self.what)
    }
}

#[derive(Clone, Debug)]
pub enum Change {
    /// `left operator right` with another operator.
    Operator {
        left: Range<usize>,
        right: Range<usize>,
        old: String,
        new: String,
    },
    /// `!x` or `-x` becomes `x`.
    Bare { whole: Range<usize>, inner: Range<usize> },
    /// A condition that is always true, or always false.
    Fixed { condition: Range<usize>, value: bool },
    /// A statement that is left out.
    Omit { statement: Range<usize> },
    /// An arm of a match that never matches; `at` is the end of its pattern, `guard` what stands behind its `if`.
    NoArm { at: usize, guard: Option<Range<usize>> },
    /// A function that returns at once.
    Returns { at: usize, value: String },
}

impl Change {
    /// The bytes that the change rewrites.
    pub fn range(&self) -> Range<usize> {
        match self {
            Change::Operator { left, right, .. } => left.start..right.end,
            Change::Bare { whole, .. } => whole.clone(),
            Change::Fixed { condition, .. } => condition.clone(),
            Change::Omit { statement } => statement.clone(),
            Change::NoArm { at, guard } => match guard {
                Some(guard) => guard.clone(),
                None => *at..*at,
            },
            Change::Returns { at, .. } => *at..*at,
        }
    }
}

/// All mutants of the files below `places`.
pub fn all(root: &Path, places: &[&str]) -> Result<Vec<Mutant>, String> {
    let listed = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "crates/*.rs"])
        .output();
    let listed = String::from_utf8(listed.map_err(|e| format!("git: {e}"))?.stdout).map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    for file in listed.lines() {
        let is_test = file.contains("/tests/") || file.ends_with("/tests.rs") || file.ends_with("_tests.rs");
        if is_test || !places.iter().any(|place| file.starts_with(place)) {
            continue;
        }
        let text = std::fs::read_to_string(root.join(file)).map_err(|e| format!("{file}: {e}"))?;
        let parsed = syn::parse_file(&text).map_err(|e| format!("{file}: {e}"))?;
        let mut finder = Finder {
            file,
            text: &text,
            function: Vec::new(),
            found: Vec::new(),
        };
        finder.visit_file(&parsed);
        found.extend(finder.found);
    }
    Ok(found)
}

/// `count` mutants, as evenly over the folders as they allow, the same for the same seed.
pub fn sample(all: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    let mut folders: BTreeMap<String, Vec<Mutant>> = BTreeMap::new();
    for mutant in all {
        let mut parts = mutant.file.split('/').skip(1);
        let (name, src, place) = (parts.next(), parts.next(), parts.next());
        let _ = src;
        folders
            .entry(format!("{}/{}", name.unwrap_or(""), place.unwrap_or("")))
            .or_default()
            .push(mutant);
    }
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut dice = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let total: usize = folders.values().map(Vec::len).sum();
    let mut taken = Vec::new();
    for (_, mut mutants) in folders {
        // In proportion to its size, but never fewer than five: a small file decides as much as a large one.
        let share = (mutants.len() * count).div_ceil(total.max(1)).max(5).min(mutants.len());
        for at in 0..share {
            let other = at + (dice() % (mutants.len() - at) as u64) as usize;
            mutants.swap(at, other);
        }
        mutants.truncate(share);
        taken.extend(mutants);
    }
    taken.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    taken
}

/// The mutants on lines that changed since `rev`.
pub fn changed_since(root: &Path, rev: &str, all: Vec<Mutant>) -> Result<Vec<Mutant>, String> {
    let diff = Command::new("git")
        .current_dir(root)
        .args(["diff", "-U0", rev, "--", "crates"])
        .output();
    let diff = String::from_utf8_lossy(&diff.map_err(|e| format!("git: {e}"))?.stdout).into_owned();
    let mut changed: HashSet<(String, usize)> = HashSet::new();
    let mut file = String::new();
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            file = name.to_string();
        } else if let Some(rest) = line.strip_prefix("@@ ") {
            let plus = rest
                .split('+')
                .nth(1)
                .and_then(|s| s.split(' ').next())
                .unwrap_or("0,0");
            let mut numbers = plus.split(',').map(|n| n.parse::<usize>().unwrap_or(0));
            let (start, count) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(1));
            changed.extend((start..start + count).map(|at| (file.clone(), at)));
        }
    }
    Ok(all
        .into_iter()
        .filter(|m| changed.contains(&(m.file.clone(), m.line)))
        .collect())
}

struct Finder<'a> {
    file: &'a str,
    text: &'a str,
    function: Vec<String>,
    found: Vec<Mutant>,
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        // Whatever is compiled under a condition may not be there in this build.
        path.is_ident("test") || path.is_ident("cfg")
    })
}

/// A `let` inside of a condition binds names for what follows, so it cannot be moved into a branch.
fn binds(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        syn::Expr::Paren(paren) => binds(&paren.expr),
        _ => false,
    }
}

impl Finder<'_> {
    fn add(&mut self, line: usize, what: String, change: Change) {
        let function = self.function.join("::");
        self.found.push(Mutant {
            id: 0,
            file: self.file.to_string(),
            line,
            function,
            what,
            change,
        });
    }

    fn short(&self, range: &Range<usize>) -> String {
        let text: String = self.text[range.clone()]
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        if text.chars().count() > 60 {
            format!("{}...", text.chars().take(57).collect::<String>())
        } else {
            text
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() {
            return;
        }
        self.function.push(signature.ident.to_string());
        let at = block.span().byte_range().start + 1;
        let line = signature.span().start().line;
        for value in returns(&signature.output) {
            let shown = if value.is_empty() { "()" } else { &value };
            if block.stmts.is_empty() {
                continue;
            }
            self.add(
                line,
                format!("returns {shown} at once"),
                Change::Returns {
                    at,
                    value: value.clone(),
                },
            );
        }
        visit::visit_block(self, block);
        self.function.pop();
    }
}

/// The simple values of a return type.
fn returns(output: &syn::ReturnType) -> Vec<String> {
    let syn::ReturnType::Type(_, kind) = output else {
        return vec![String::new()];
    };
    let syn::Type::Path(path) = kind.as_ref() else {
        return Vec::new();
    };
    let Some(last) = path.path.segments.last() else {
        return Vec::new();
    };
    let inside = |at: usize| match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => match arguments.args.iter().nth(at) {
            Some(syn::GenericArgument::Type(inner)) => Some(inner.clone()),
            _ => None,
        },
        _ => None,
    };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true".into(), "false".into()],
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => vec!["0".into(), "1".into()],
        "Option" => vec!["None".into()],
        "Vec" => vec!["Vec::new()".into()],
        "Result" => match inside(0) {
            Some(syn::Type::Tuple(tuple)) if tuple.elems.is_empty() => vec!["Ok(())".into()],
            Some(syn::Type::Path(inner)) => match inner.path.segments.last().map(|s| s.ident.to_string()).as_deref() {
                Some("bool") => vec!["Ok(true)".into(), "Ok(false)".into()],
                Some("u8" | "u16" | "u32" | "u64" | "usize") => vec!["Ok(0)".into(), "Ok(1)".into()],
                Some("Option") => vec!["Ok(None)".into()],
                Some("Vec") => vec!["Ok(Vec::new())".into()],
                _ => Vec::new(),
            },
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// The operator that stands in for another.
fn others(operator: &syn::BinOp) -> &'static [&'static str] {
    use syn::BinOp::*;
    match operator {
        Lt(_) => &["<=", ">"],
        Le(_) => &["<", ">"],
        Gt(_) => &[">=", "<"],
        Ge(_) => &[">", "<"],
        Eq(_) => &["!="],
        Ne(_) => &["=="],
        And(_) => &["||"],
        Or(_) => &["&&"],
        Add(_) => &["-"],
        Sub(_) => &["+"],
        Mul(_) => &["+"],
        Div(_) => &["*"],
        Rem(_) => &["/"],
        BitAnd(_) => &["|"],
        BitOr(_) => &["&"],
        Shl(_) => &[">>"],
        Shr(_) => &["<<"],
        AddAssign(_) => &["-="],
        SubAssign(_) => &["+="],
        BitOrAssign(_) => &["&="],
        BitAndAssign(_) => &["|="],
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        // What is printed for people is not what is tested here.
        let printed = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        let printed = printed.is_some_and(|last| last.ident == "Debug" || last.ident == "Display");
        if !printed && !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_stmt(&mut self, stmt: &'ast syn::Stmt) {
        if let syn::Stmt::Expr(expr, Some(_)) = stmt {
            let worth = match expr {
                syn::Expr::MethodCall(_) | syn::Expr::Call(_) | syn::Expr::Try(_) => true,
                // A field keeps its old value; a local might have none.
                syn::Expr::Assign(assign) => matches!(*assign.left, syn::Expr::Field(_) | syn::Expr::Index(_)),
                _ => false,
            };
            if worth {
                let statement = stmt.span().byte_range();
                let what = format!("omits `{}`", self.short(&statement));
                self.add(stmt.span().start().line, what, Change::Omit { statement });
            }
        }
        visit::visit_stmt(self, stmt);
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        if !binds(&expr.cond) && !matches!(*expr.cond, syn::Expr::Binary(_)) {
            let condition = expr.cond.span().byte_range();
            for value in [true, false] {
                let what = format!("if {value} for `{}`", self.short(&condition));
                self.add(
                    expr.cond.span().start().line,
                    what,
                    Change::Fixed {
                        condition: condition.clone(),
                        value,
                    },
                );
            }
        }
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        if !binds(&expr.left) && !binds(&expr.right) {
            let (left, right) = (expr.left.span().byte_range(), expr.right.span().byte_range());
            let old = self.text[expr.op.span().byte_range()].to_string();
            for new in others(&expr.op) {
                let what = format!("{old} becomes {new} in `{}`", self.short(&(left.start..right.end)));
                let (left, right, old) = (left.clone(), right.clone(), old.clone());
                self.add(
                    expr.op.span().start().line,
                    what,
                    Change::Operator {
                        left,
                        right,
                        old,
                        new: new.to_string(),
                    },
                );
            }
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if matches!(expr.op, syn::UnOp::Not(_)) {
            let (whole, inner) = (expr.span().byte_range(), expr.expr.span().byte_range());
            let what = format!("no ! in `{}`", self.short(&whole));
            self.add(expr.span().start().line, what, Change::Bare { whole, inner });
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        // A capital letter is a variant or a constant, though it looks like a name that is bound.
        let takes_all = |pattern: &syn::Pat| match pattern {
            syn::Pat::Wild(_) => true,
            syn::Pat::Ident(name) => !name.ident.to_string().starts_with(char::is_uppercase),
            _ => false,
        };
        let open = expr.arms.iter().any(|arm| arm.guard.is_none() && takes_all(&arm.pat));
        for arm in &expr.arms {
            let line = arm.pat.span().start().line;
            let at = arm.pat.span().byte_range().end;
            match &arm.guard {
                Some((_, guard)) if !binds(guard) => {
                    let condition = guard.span().byte_range();
                    let what = format!("guard true for `{}`", self.short(&condition));
                    self.add(
                        line,
                        what,
                        Change::Fixed {
                            condition: condition.clone(),
                            value: true,
                        },
                    );
                    let what = format!("no arm `{}`", self.short(&arm.pat.span().byte_range()));
                    self.add(
                        line,
                        what,
                        Change::NoArm {
                            at,
                            guard: Some(condition),
                        },
                    );
                }
                None if open && !takes_all(&arm.pat) => {
                    let what = format!("no arm `{}`", self.short(&arm.pat.span().byte_range()));
                    self.add(line, what, Change::NoArm { at, guard: None });
                }
                _ => {}
            }
        }
        visit::visit_expr_match(self, expr);
    }
}
