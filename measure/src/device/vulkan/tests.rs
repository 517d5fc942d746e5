//! What a Vulkan device must never do. Without one these tests print `skipped` and the reason.

use super::*;

fn device() -> Option<VulkanDevice> {
    match VulkanDevice::open(0) {
        Ok(device) => Some(device),
        Err(failure) => {
            eprintln!("skipped: {failure}");
            None
        }
    }
}
