//! The traits of conversion from control's views to the bodies of the API.

/// A body of the API that shows a view of control.
pub trait FromControl<T> {
    /// Converts a view.
    fn from_control(view: T) -> Self;
}

/// The other direction of [`FromControl`], as `Into` is of `From`.
pub trait IntoApi: Sized {
    /// Converts this view.
    fn into_api<T: FromControl<Self>>(self) -> T;
}

impl<V> IntoApi for V {
    fn into_api<T: FromControl<V>>(self) -> T {
        T::from_control(self)
    }
}

/// A body that was made where control was asked is shown as it is.
impl FromControl<weir_api_types::AdaptivePolicyGroup> for weir_api_types::AdaptivePolicyGroup {
    fn from_control(group: weir_api_types::AdaptivePolicyGroup) -> weir_api_types::AdaptivePolicyGroup {
        group
    }
}
